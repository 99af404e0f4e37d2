"""The names that a test's code uses, asked of the functions that it can call."""

from __future__ import annotations

import functools
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from pytest_skillopt.suite.internals import fixture_functions
from pytest_skillopt.suite.surroundings import Surroundings, file_of_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest


def names_used(item: pytest.Item) -> frozenset[str]:
    """Return the names in the code of an item's function and fixtures, attributes included.

    The project's functions and classes that this code names, also in a module, count, too.
    """
    begin = getattr(item, "obj", None), *fixture_functions(item)
    functions = tuple(each for each in map(_function_of, begin) if each is not None)
    return _names(functions, getattr(item, "cls", None), Surroundings.of(item.config).name_of)


@functools.lru_cache(64)  # The tasks of one function follow each other.
def _names(
    begin: tuple[FunctionType, ...], own_class: type | None, name_of: Callable[[Path], str]
) -> frozenset[str]:
    waiting: list[Any] = list(begin)
    seen: set[object] = set()
    found: set[str] = set()
    while waiting:
        value = waiting.pop()
        if issubclass(type(value), type):
            if value not in seen:
                seen.add(value)
                waiting += [*filter(_function_of, vars(value).values()), *value.__bases__]
            continue
        function = _function_of(value)
        if function is None:
            waiting.append(type(value))
            continue
        file = file_of_code(function)
        is_own = function is begin[0] or (file is not None and name_of(file))
        if function in seen or not is_own:
            continue
        seen.add(function)
        names = {name for code in _nested(function.__code__) for name in code.co_names}
        found |= names
        waiting += _named(function, names)
        waiting += [getattr(function, "__wrapped__", None), *_members(own_class, names)]
    return frozenset(found)


def _function_of(value: Any) -> FunctionType | None:
    """Return the function of a method, a property and the like."""
    if type(value) in (staticmethod, classmethod, MethodType):
        value = value.__func__
    elif type(value) is property:
        value = value.fget
    return value if type(value) is FunctionType else None


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _named(function: FunctionType, names: set[str]) -> Iterator[Any]:
    """Yield the values of a function's closure and those that names have in its module."""
    for cell in function.__closure__ or ():
        if cell != CellType():  # The variable of an empty cell is not set yet.
            yield cell.cell_contents
    scope = function.__globals__
    for name in names & scope.keys():
        yield scope[name]
        if type(scope[name]) is ModuleType:
            yield from _members(scope[name], names)


def _members(owner: object, names: set[str]) -> Iterator[Any]:
    for cls in getattr(owner, "__mro__", (owner,)):
        known = getattr(cls, "__dict__", {})
        yield from (known[name] for name in names & known.keys())
