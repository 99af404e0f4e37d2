"""What the rollouts of one process share, and which of them needs it alone.

What a process has only once (environment, working directory, standard output, warning filters,
patched modules) cannot be had several times: a test that changes it runs alone, while the other
lanes wait. Each of the others is given what its own thread prints.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import pytest

from pytest_skillopt.suite.internals.items import abandon_setup
from pytest_skillopt.suite.internals.sessions import shared_process

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

ALONE_FIXTURES = frozenset(
    (
        # pytest's own
        *("capsys", "capsysbinary", "capteesys", "capfd", "capfdbinary", "caplog", "recwarn"),
        *("monkeypatch", "subtests", "pytester", "testdir"),
        # of common plugins
        *("mocker", "class_mocker", "module_mocker", "package_mocker", "session_mocker"),
        *("httpx_mock", "respx_mock", "requests_mock", "responses", "aioresponses"),
        *("freezer", "time_machine", "fs", "socket_disabled", "socket_enabled"),
    )
)
"""Fixtures that change what all rollouts of a process share."""
_ALONE_MARKERS = ("filterwarnings", "disable_socket", "enable_socket", "freeze_time")
OUTPUT_LIMIT = 16_000
"""Characters of its output that a rollout keeps."""


class _Output(io.StringIO):
    """Keeps the beginning of what a rollout prints."""

    def write(self, text: str) -> int:
        if self.tell() < OUTPUT_LIMIT:
            super().write(text[:OUTPUT_LIMIT])
        return len(text)


@dataclass(slots=True)
class Lane:
    """What the hooks know of the rollout whose thread calls them."""

    alone: bool
    output: _Output = field(default_factory=_Output)
    needs_process: bool = False
    """It asked for a fixture that cannot be had beside other rollouts."""


_LANE: ContextVar[Lane | None] = ContextVar("skillopt_lane", default=None)


@contextlib.contextmanager
def current(lane: Lane) -> Iterator[None]:
    """Mark this thread as that of the lane."""
    token = _LANE.set(lane)
    try:
        yield
    finally:
        _LANE.reset(token)


def needs_process(item: pytest.Item | None) -> bool:
    """Whether a test can be seen to change what all rollouts of a process share."""
    if not ALONE_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        return True
    if item is None:
        return False
    patched = hasattr(getattr(item, "obj", None), "patchings")  # unittest.mock.patch
    return patched or any(item.get_closest_marker(name) for name in _ALONE_MARKERS)


class LaneHooks:
    """Let the body of a test run beside others, and notice what it asks for meanwhile."""

    def __init__(self, machinery: threading.Lock) -> None:
        self._machinery = machinery

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_pyfunc_call(self) -> Generator[None, object, object]:
        """Let the other lanes go on while the test function runs."""
        lane = _LANE.get()
        if lane is None or lane.alone:
            return (yield)
        self._machinery.release()
        try:
            return (yield)
        finally:
            self._machinery.acquire()

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """A fixture that is asked for by name while the test runs could not be foreseen."""
        lane = _LANE.get()
        if lane is not None and not lane.alone and fixturedef.argname in ALONE_FIXTURES:
            lane.needs_process = True
            abandon_setup(fixturedef)
            pytest.fail(f"{fixturedef.argname} needs the process alone", pytrace=False)


class SharedProcess:
    """Either several rollouts share the process, or one has it alone, as in an ordinary run."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._changed = threading.Condition()
        self._sharing = 0
        self._waiting = 0
        self._taken = False
        self._together = contextlib.ExitStack()

    def __enter__(self) -> None:
        self._begin_sharing()

    def __exit__(self, *exception: object) -> None:
        self._together.close()

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._taken)
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def taken_alone(self) -> Iterator[None]:
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._sharing and not self._taken)
            self._waiting -= 1
            self._taken = True
        try:
            self._together.close()
            yield
        finally:
            try:
                self._begin_sharing()
            finally:
                with self._changed:
                    self._taken = False
                    self._changed.notify_all()

    def _begin_sharing(self) -> None:
        self._together.enter_context(shared_process(self._session))
        self._together.enter_context(contextlib.redirect_stdout(_LaneStream(sys.stdout)))
        self._together.enter_context(contextlib.redirect_stderr(_LaneStream(sys.stderr)))


class _LaneStream(io.TextIOBase):
    """Standard output that gives each rollout what its own thread prints."""

    def __init__(self, real: TextIO) -> None:
        self._real = real

    def write(self, text: str) -> int:
        lane = _LANE.get()
        return self._real.write(text) if lane is None else lane.output.write(text)

    def flush(self) -> None:
        self._real.flush()

    def fileno(self) -> int:
        return self._real.fileno()

    def isatty(self) -> bool:
        return False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._real.encoding

    @property
    def buffer(self) -> BinaryIO:
        return self._real.buffer
