"""Run several rollouts at once in one process, for tests that mostly wait for a model.

Each lane has its own pytest session over the same configuration and its own thread. All lanes share
one lock, released only while a test function runs, so that only the bodies of tests overlap. See
docs/decisions/workers.md.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, cast

import pytest

from pytest_skillopt.internals import probe
from pytest_skillopt.plugins.lanes.internals import (
    NAMES,
    abandon_setup,
    more_sessions,
    shared_process,
)
from pytest_skillopt.rollouts.interrupts import settled
from pytest_skillopt.rollouts.outcome import OUTPUT_LIMIT
from pytest_skillopt.rollouts.rollout import Rollout
from pytest_skillopt.rollouts.runner import RUNNING, RolloutRunner, Running

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from pytest_skillopt.rollouts.interrupts import Watchdog
    from pytest_skillopt.rollouts.rollout import RolloutRequest


EXCLUSIVE_FIXTURES = frozenset(
    (
        # pytest's own
        *("capsys", "capsysbinary", "capteesys", "capfd", "capfdbinary", "caplog", "recwarn"),
        *("monkeypatch", "subtests", "pytester", "testdir"),
        # of common plugins
        *("mocker", "class_mocker", "module_mocker", "package_mocker", "session_mocker"),
        *("httpx_mock", "respx_mock", "requests_mock", "responses", "aioresponses"),
        *("anyio_backend", "freezer", "time_machine", "fs", "socket_disabled", "socket_enabled"),
    )
)
"""Fixtures that change state shared by all rollouts of a process."""
_EXCLUSIVE_MARKERS = ("filterwarnings", "disable_socket", "enable_socket", "freeze_time")


def needs_process(item: pytest.Item) -> bool:
    fixtures = not EXCLUSIVE_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
    patched = hasattr(getattr(item, "obj", None), "patchings")  # unittest.mock.patch
    return fixtures or patched or any(item.get_closest_marker(name) for name in _EXCLUSIVE_MARKERS)


class LaneHooks:
    """Let the bodies of tests overlap, and notice fixtures that they request meanwhile."""

    def __init__(self, machinery: threading.Lock) -> None:
        self._machinery = machinery

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_pyfunc_call(self) -> Generator[None, object, object]:
        """Release the lock while the test function runs."""
        running = RUNNING.get()
        if running is None or running.exclusive:
            return (yield)
        self._machinery.release()
        try:
            return (yield)
        finally:
            self._machinery.acquire()

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """Stop a test that requests, while it runs, a fixture that nothing else may run beside."""
        running = RUNNING.get()
        if not isinstance(running, Beside):
            return
        if fixturedef.argname in EXCLUSIVE_FIXTURES:
            running.needs_process = True
            abandon_setup(fixturedef)
            pytest.fail(f"{fixturedef.argname} cannot share the process", pytrace=False)


@dataclass
class Beside(Running):
    """State of a rollout that shares the process."""

    exclusive: bool = False
    needs_process: bool = False
    """True if it requested a fixture that nothing else may run beside."""


class SharedProcess:
    """Lock of the process: several rollouts share it, or one has it to itself."""

    def __init__(self, session: pytest.Session, lanes: int) -> None:
        self._session = session
        self._lanes = lanes
        self._places = threading.Semaphore(lanes)
        self._turn = threading.Lock()
        """Held by the rollout that waits for the whole process, or has it."""
        self._together = contextlib.ExitStack()

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        with self._turn:
            self._places.acquire()
        try:
            yield
        finally:
            self._places.release()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._turn, contextlib.ExitStack() as afterwards:
            for _ in range(self._lanes):
                self._places.acquire()
            afterwards.callback(self._places.release, self._lanes)
            self.end_sharing()
            afterwards.callback(self.begin_sharing)
            yield

    def end_sharing(self) -> None:
        self._together.close()

    def begin_sharing(self) -> None:
        self._together.enter_context(shared_process(self._session))
        out = cast("Any", _LaneStream(sys.stdout))
        err = cast("Any", _LaneStream(sys.stderr))
        self._together.enter_context(contextlib.redirect_stdout(out))
        self._together.enter_context(contextlib.redirect_stderr(err))


class _LaneStream:
    """Standard output that records for each rollout the output of its thread."""

    def __init__(self, real: TextIO) -> None:
        self._real = real

    def write(self, text: str) -> int:
        running = RUNNING.get()
        if running is None:
            return self._real.write(text)
        running.printed = (running.printed + text)[:OUTPUT_LIMIT]
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


_STOP_PATIENCE = 1.0
"""Total seconds that rollouts still running at the end have to finish."""


class Lanes:
    """Run rollouts on several threads of this process, within ``rollouts_only``.

    ``deliver`` is called with every rollout, in the thread that ran it.
    """

    def __init__(
        self,
        runner: RolloutRunner,
        slots: int,
        watchdog: Watchdog,
        deliver: Callable[[Rollout], None],
    ) -> None:
        probe(NAMES, ("pytest",))
        session = runner.session
        self._config = session.config
        self._deliver = deliver
        self._watchdog = watchdog
        self._queue: queue.SimpleQueue[RolloutRequest | None] = queue.SimpleQueue()
        self._machinery = threading.Lock()
        self._process = SharedProcess(session, slots)
        self._exclusive = {item.nodeid for item in session.items if needs_process(item)}
        """Tasks that cannot share the process."""
        self._stray: list[str] = []
        others = [runner.beside(other) for other in more_sessions(session, slots - 1)]
        self._runners = [runner, *others]
        self._threads: list[threading.Thread] = []
        self._open = contextlib.ExitStack()

    def _start(self) -> None:
        hooks = LaneHooks(self._machinery)
        self._config.pluginmanager.register(hooks)
        self._open.callback(self._config.pluginmanager.unregister, hooks)
        self._process.begin_sharing()
        self._open.callback(self._process.end_sharing)
        for n, runner in enumerate(self._runners):
            name = f"skillopt-lane-{n}"
            thread = threading.Thread(target=self._work, args=(runner,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def put(self, request: RolloutRequest) -> None:
        if not self._threads:
            self._start()
        self._queue.put(request)

    def close(self) -> list[str]:
        """Wait a while for running rollouts; return the errors that occurred between rollouts."""
        for _ in self._threads:
            self._queue.put(None)
        deadline = time.monotonic() + _STOP_PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._open.close()
        stuck = [thread.name for thread in self._threads if thread.is_alive()]
        return self._stray + [f"{name}: a rollout was still running at the end" for name in stuck]

    def _work(self, runner: RolloutRunner) -> None:
        while request := self._queue.get():
            self._deliver(settled(functools.partial(self._run, runner, request)))
        with self._machinery:
            self._stray += runner.close()

    def _run(self, runner: RolloutRunner, request: RolloutRequest) -> Rollout:
        # The time-out begins when the rollout has the process: waiting is not the test's fault.
        watching = self._watchdog.watching
        try:
            if request.task not in self._exclusive:
                beside = Beside()
                with self._process.shared(), self._machinery, watching(request):
                    rollout = runner.run(request, beside)
                if not beside.needs_process:
                    return rollout
                self._exclusive.add(request.task)
            with self._process.exclusive(), self._machinery, watching(request):
                return runner.run(request)
        except BaseException:
            return Rollout.of_error(request, "internal", traceback.format_exc())
