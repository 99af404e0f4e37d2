"""Tasks whose HTTP requests are answered by a recording: such an answer is no sample.

The item is asked: its markers, its fixtures, the modules of the functions around the test, and the
packages that the test's function and the project's own fixtures name.
"""

from __future__ import annotations

import inspect
from types import CodeType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_RECORDERS = frozenset({"vcr", "betamax"})
"""Markers, and packages of decorators, that answer a repeated request from a file."""
_RECORDING_FIXTURES = frozenset({"vcr_cassette", "betamax_session", "betamax_recorder"})
_OFF = ("disable_recording", "disable_vcr")
"""Options of pytest-recording and pytest-vcr that send every request."""


def refuse_recording(item: pytest.Item) -> None:
    """Raise UsageError if a recording answers the test's repeated requests."""
    config = item.config
    names = _RECORDERS & {mark.name for mark in item.iter_markers()}
    names |= _RECORDING_FIXTURES.intersection(getattr(item, "fixturenames", ()))
    names |= _RECORDERS.intersection(_arguments(item))  # as a fixture it may be there for all tests
    names |= _RECORDERS.intersection(_decorators(item))
    names |= _RECORDERS & _named_packages(item)
    marks = (mark.kwargs for mark in item.iter_markers("vcr"))
    modes = [kwargs["record_mode"] for kwargs in marks if "record_mode" in kwargs]
    mode = next(iter(modes), config.getoption("record_mode", None))
    if not names or mode == "all" or any(config.getoption(name, False) for name in _OFF):
        return
    raise pytest.UsageError(
        f"{item.nodeid} is answered from a recording ({', '.join(sorted(names))}): each repetition "
        "would get the first answer again, which is no sample. Run with --disable-recording "
        "(pytest-recording) or --disable-vcr (pytest-vcr), take the recording off this test, or "
        "leave the test out with --deselect"
    )


def _arguments(item: pytest.Item) -> list[str]:
    function = getattr(item, "obj", None)
    return list(inspect.signature(function).parameters) if inspect.isroutine(function) else []


def _decorators(item: pytest.Item) -> Iterator[str]:
    """Yield the package of each function that wraps the test's function, from the outermost."""
    function: Any = getattr(item, "obj", None)
    while hasattr(function, "__wrapped__"):
        names = getattr(function, "__globals__", {}).get("__name__", "")
        wrapper = getattr(function, "_self_wrapper", None)  # by wrapt
        for name in (names, getattr(wrapper, "__module__", "")):
            yield str(name).partition(".")[0]
        function = function.__wrapped__


def _named_packages(item: pytest.Item) -> set[str]:
    """Return the packages that the test's function and the project's fixtures for it name."""
    # An ordinary run imports this module for the marker.
    from pytest_skillopt.internals import fixture_functions
    from pytest_skillopt.tasks.surroundings import Surroundings, file_of_code

    surroundings = Surroundings.of(item.config)
    found: set[str] = set()
    functions = fixture_functions(item)
    if inspect.isroutine(test := getattr(item, "obj", None)):
        functions.append(inspect.unwrap(test))
    for function in functions:
        file = file_of_code(function)
        if file and surroundings.name_of(file):
            names = _named_by(function.__code__, function.__globals__)
            found |= {name.partition(".")[0] for name in names}
    return found


def _named_by(code: CodeType, names: dict[str, Any]) -> Iterator[str]:
    """Yield the names in code, which may be imported there, and the modules of those globals."""
    for name in code.co_names:
        value = names.get(name)
        told = (getattr(value, field, "") for field in ("__name__", "__module__"))
        yield from (name, type(value).__module__, *map(str, told))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _named_by(constant, names)
