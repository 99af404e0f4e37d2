"""Python functions as tools: declared from their signature, called with validated values."""

from __future__ import annotations

import functools
import inspect
import json
import re
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from pytest_skillopt.model.structured import problems, trimmed
from pytest_skillopt.model.types import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Awaiter = Callable[[Any], Any]
    """Runs an awaitable to its end and returns the result."""

_TITLE = frozenset({"title"})
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    function: Callable[..., Any]
    arguments: TypeAdapter[Any]
    """Reads JSON text into positional and named arguments."""
    schema: dict[str, Any]

    def declaration(self) -> dict[str, Any]:
        about = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": about}

    def call(self, arguments: str, awaiter: Awaiter) -> str:
        """Call it with the JSON text that the model wrote; return the result or error as text.

        An ``AssertionError``, a failure or skip by pytest, and a fault of a model are raised.
        """
        text = arguments.strip() or "{}"
        if text.startswith("["):
            return "Error: bad arguments: they must be a JSON object"
        try:
            positional, named = self.arguments.validate_json(text)
        except ValidationError as error:
            return f"Error: bad arguments: {problems(error, 'arguments')}"
        try:
            result = self.function(*positional, **named)
            if inspect.isawaitable(result):
                result = awaiter(result)
        except (AssertionError, ModelError):
            raise
        except Exception as error:
            return f"Error: {type(error).__name__}: {error}"
        return _as_text(result)


def make_tools(functions: Iterable[Callable[..., Any] | Tool]) -> dict[str, Tool]:
    """Make tools by name; those that are made already are taken as they are.

    Raises:
        TypeError: a function that cannot be declared.
        ValueError: two functions of one name.
    """
    made: dict[str, Tool] = {}
    for function in functions:
        tool = function if isinstance(function, Tool) else make_tool(function)
        if tool.name in made:
            raise ValueError(f"two tools are named {tool.name!r}; rename one of the functions")
        made[tool.name] = tool
    return made


def make_tool(function: Callable[..., Any]) -> Tool:
    """Make a tool from a function's name, signature, type hints and docstring.

    A parameter without a hint takes any JSON value; ``Annotated[..., Field(description=...)]``
    describes a parameter.

    Raises:
        TypeError: no usable name, parameters without names, or a type without a JSON schema.
    """
    name = getattr(function, "__name__", type(function).__name__)
    if not callable(function) or not _NAME.fullmatch(name):
        raise TypeError(f"{function!r} cannot be a tool: it is not a function with a plain name")
    try:
        reader = _reader(function)
        arguments: TypeAdapter[Any] = TypeAdapter(reader)
        schema = {"properties": {}, **trimmed(arguments.json_schema(), _TITLE)}
        if schema["type"] != "object" or isinstance(schema.get("additionalProperties"), dict):
            raise TypeError("a model can fill only named parameters")
    except Exception as error:
        raise TypeError(f"{name} cannot be a tool: {error}") from error
    description = inspect.getdoc(function) or ""
    return Tool(name, description, function, arguments, schema)


def _reader(function: Callable[..., Any]) -> Any:
    """Make a function of the same signature that returns its arguments."""
    target: Any = function
    if not inspect.isroutine(function):
        target = type(function).__call__.__get__(function)

    @functools.wraps(target)
    def read(*positional: Any, **named: Any) -> Any:
        return positional, named

    read.__annotations__ = typing.get_type_hints(target, include_extras=True)
    return read


def _as_text(result: Any) -> str:
    if isinstance(result, str):
        return result
    if isinstance(result, BaseModel):
        return result.model_dump_json()
    return json.dumps(result, ensure_ascii=False, default=str)
