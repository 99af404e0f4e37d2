"""The identity of a test's function: its source and its parameters, the same in every process."""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import inspect
import sys
import textwrap
from pathlib import PurePath
from typing import Any

_REMEMBERED = 64
"""Number of functions whose source is cached; the tasks of one function follow each other."""


def source_text(function: Any) -> str:
    """Return the source of a test's function, without its decorators' own; its name if unknown."""
    whole = inspect.unwrap(function)
    try:
        return _text_of(getattr(whole, "__code__", whole))
    except (OSError, TypeError):
        return getattr(function, "__qualname__", "")


@functools.lru_cache(_REMEMBERED)
def _text_of(code: Any) -> str:
    return textwrap.dedent(inspect.getsource(code))


@functools.lru_cache(_REMEMBERED)
def core(text: str) -> str:
    """Return a function's parameters and body in a form that is free of its name and layout."""
    node = function_in(text)
    return text if node is None else "".join(map(dump, (node.args, *node.body)))


def function_in(text: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    try:
        node = ast.parse(text).body[0]
    except (SyntaxError, IndexError):
        return None
    return node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None


def dump(node: ast.AST) -> str:
    """Dump a tree independently of the Python version, which may differ between workers."""
    if sys.version_info >= (3, 13):
        text = ast.dump(node, show_empty=True)
    else:
        text = ast.dump(node)
    return text.replace(", type_params=[]", "")


def parameter_json(value: Any) -> Any:
    """Return a parameter as JSON that is the same in every process.

    None if a part of the parameter is identified only by its address.
    """
    try:
        return _stable(value)
    except TypeError:
        return None


def _stable(value: Any) -> Any:
    """Convert to JSON that is the same in every process; raise TypeError if there is none."""
    if value is None or isinstance(value, str | int | float | bool):
        return value if not isinstance(value, float) else repr(value)
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _stable(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return [type(value).__name__, fields]
    if isinstance(value, dict):
        return [[_stable(k), _stable(v)] for k, v in value.items()]
    if isinstance(value, list | tuple):
        return [_stable(v) for v in value]
    if isinstance(value, bytes | PurePath):
        return repr(value)
    text = repr(value)
    if " at 0x" in text or isinstance(value, set | frozenset):
        raise TypeError
    return text
