"""Python functions as tools: declared from their signature, called with checked values."""

from __future__ import annotations

import inspect
import json
import re
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from pytest_skillopt.model.structured import problems
from pytest_skillopt.model.types import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Awaiter = Callable[[Any], Any]
    """Runs an awaitable to its end and returns the result."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call."""

    name: str
    description: str
    function: Callable[..., Any]
    arguments: type[BaseModel]
    parameters: tuple[inspect.Parameter, ...]

    def declaration(self) -> dict[str, Any]:
        schema = _untitled(self.arguments.model_json_schema(by_alias=True))
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": {"type": "object", "properties": {}, **schema},
            },
        }

    def call(self, arguments: str, awaiter: Awaiter) -> str:
        """Call it with the JSON text that the model wrote; the result, or the error, as text.

        An ``AssertionError``, a failure or skip by pytest and a fault of a model are not the tool's
        answer: they are raised.
        """
        try:
            values = self.arguments.model_validate_json(arguments.strip() or "{}")
        except ValidationError as error:
            return f"Error: bad arguments: {problems(error, 'arguments')}"
        positional, named = self._bind(values)
        try:
            result = self.function(*positional, **named)
            if inspect.isawaitable(result):
                result = awaiter(result)
        except (AssertionError, ModelError):
            raise
        except Exception as error:
            return f"Error: {type(error).__name__}: {error}"
        return _as_text(result)

    def _bind(self, values: BaseModel) -> tuple[list[Any], dict[str, Any]]:
        positional, named = [], {}
        for index, parameter in enumerate(self.parameters):
            value = getattr(values, _field(index))
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[parameter.name] = value
        return positional, named


def make_tools(functions: Iterable[Callable[..., Any]]) -> dict[str, Tool]:
    """Tools by name; TypeError for a function that no model can be told of, ValueError for two of
    one name."""
    made: dict[str, Tool] = {}
    for function in functions:
        tool = make_tool(function)
        if tool.name in made:
            raise ValueError(f"two tools are named {tool.name!r}")
        made[tool.name] = tool
    return made


def make_tool(function: Callable[..., Any]) -> Tool:
    """A tool from a function's name, signature, type hints and docstring.

    A parameter without a hint takes any JSON value; ``Annotated[..., Field(description=...)]``
    describes one apart from the docstring.

    Raises:
        TypeError: no usable name, ``*args`` or ``**kwargs``, or a type that has no JSON schema.
    """
    name = getattr(function, "__name__", type(function).__name__)
    if not callable(function) or not _NAME.fullmatch(name):
        raise TypeError(f"{function!r} cannot be a tool: it is no function with a plain name")
    try:
        parameters = tuple(inspect.signature(function).parameters.values())
        hints = _hints(function)
        description = inspect.getdoc(function) or ""
        fields = {
            _field(index): _declare(parameter, hints) for index, parameter in enumerate(parameters)
        }
        config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
        arguments = create_model(f"{name}_arguments", __config__=config, **fields)
        tool = Tool(name, description, function, arguments, parameters)
        tool.declaration()
    except Exception as error:
        raise TypeError(f"{name} cannot be a tool: {error}") from error
    return tool


def _declare(parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        raise TypeError(f"a model cannot fill *{parameter.name}")
    hint = hints.get(parameter.name, Any)
    options: dict[str, Any] = {"alias": parameter.name}
    if parameter.default is not inspect.Parameter.empty:
        options["default"] = parameter.default
    return (hint, Field(**options))


def _field(index: int) -> str:
    """Name of a field: a parameter's own may be one that pydantic does not allow."""
    return f"argument{index}"


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    return typing.get_type_hints(target, include_extras=True)


def _untitled(schema: Any) -> Any:
    """The schema without the titles that pydantic derives from names."""
    if isinstance(schema, list):
        return [_untitled(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _untitled(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


def _as_text(result: Any) -> str:
    if isinstance(result, str):
        return result
    if isinstance(result, BaseModel):
        return result.model_dump_json()
    return json.dumps(result, ensure_ascii=False, default=str)
