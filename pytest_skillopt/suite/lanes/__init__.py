"""Several rollouts at once in one process, for tests that mostly wait for a model.

Each lane has a pytest session of its own over the same configuration, driven by its own thread. One
lock is held inside pytest's machinery and released only while a test function runs, so that only
the bodies of tests overlap. See docs/decisions/workers.md.
"""

from __future__ import annotations

import contextlib
import io
import queue
import sys
import threading
import time
import traceback
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import pytest

from pytest_skillopt.suite.context import shorten
from pytest_skillopt.suite.executor import Worker, WorkersExecutor
from pytest_skillopt.suite.interrupts import Watchdog, sigterm_interrupts
from pytest_skillopt.suite.lanes.internals import abandon_setup, more_sessions, shared_process
from pytest_skillopt.suite.rollouts import InfraError, Rollout
from pytest_skillopt.suite.runner import RolloutRunner, SkillVersions, rollouts_only

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pytest_skillopt.suite.rollouts import RolloutRequest


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


def needs_process(item: pytest.Item | None) -> bool:
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
            self.end_sharing()
            yield
        finally:
            try:
                self.begin_sharing()
            finally:
                with self._changed:
                    self._taken = False
                    self._changed.notify_all()

    def end_sharing(self) -> None:
        self._together.close()

    def begin_sharing(self) -> None:
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


_STOP_PATIENCE = 1.0
"""Seconds that rollouts still running at the end are given, all together."""


class Lanes:
    """Runs rollouts on several threads of this process, within ``rollouts_only``; ``deliver`` is
    given every rollout, in the thread that ran it."""

    def __init__(
        self,
        session: pytest.Session,
        versions: SkillVersions,
        deliver: Callable[[Rollout], None],
        *,
        lanes: int,
        worker: str = "main",
        watchdog: Watchdog,
    ) -> None:
        self._session = session
        self._deliver = deliver
        self._watchdog = watchdog
        self._queue: queue.SimpleQueue[RolloutRequest | None] = queue.SimpleQueue()
        self._machinery = threading.Lock()
        self._process = SharedProcess(session)
        self._started = False
        self._alone: dict[str, bool] = {}
        self._stray: list[str] = []
        sessions = [session, *more_sessions(session, lanes - 1)]
        self._runners = [RolloutRunner(s, versions, worker=worker) for s in sessions]
        self._threads = [
            threading.Thread(target=self._work, args=(runner,), name=f"skillopt-lane-{n}")
            for n, runner in enumerate(self._runners)
        ]
        self._open = contextlib.ExitStack()

    def _start(self) -> None:
        self._started = True
        config = self._session.config
        hooks = LaneHooks(self._machinery)
        config.pluginmanager.register(hooks)
        self._open.callback(config.pluginmanager.unregister, hooks)
        self._process.begin_sharing()
        self._open.callback(self._process.end_sharing)
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def put(self, request: RolloutRequest) -> None:
        if not self._started:
            self._start()
        self._queue.put(request)

    def close(self) -> list[str]:
        """Let running rollouts end, for a while; what went wrong between rollouts."""
        threads = self._threads if self._started else []
        for _ in threads:
            self._queue.put(None)
        deadline = time.monotonic() + _STOP_PATIENCE
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._open.close()
        stuck = [thread.name for thread in self._threads if thread.is_alive()]
        return self._stray + [f"{name}: a rollout was still running at the end" for name in stuck]

    def _work(self, runner: RolloutRunner) -> None:
        while True:
            request = self._queue.get()
            if request is None:
                with self._machinery:
                    self._stray += runner.close()
                return
            self._deliver(self._run(runner, request))

    def _run(self, runner: RolloutRunner, request: RolloutRequest) -> Rollout:
        try:
            if request.task not in self._alone:
                self._alone[request.task] = needs_process(runner.items.get(request.task))
            if not self._alone[request.task]:
                rollout = self._run_together(runner, request)
                if rollout is not None:
                    return rollout
                self._alone[request.task] = True
            with self._process.taken_alone(), self._running(request, Lane(alone=True)):
                return runner.run(request)
        except BaseException:
            error = InfraError("internal", shorten(traceback.format_exc(), 2_000))
            return Rollout(request, "error", error=error)

    def _run_together(self, runner: RolloutRunner, request: RolloutRequest) -> Rollout | None:
        """Run beside the others; None where the test turned out to need the process alone."""
        lane = Lane(alone=False)
        with self._process.shared(), self._running(request, lane):
            rollout = runner.run(request, alone=False)
        if lane.needs_process:
            return None
        output = "\n".join(part for part in (rollout.output, lane.output.getvalue()) if part)
        return replace(rollout, output=shorten(output, OUTPUT_LIMIT))

    @contextlib.contextmanager
    def _running(self, request: RolloutRequest, lane: Lane) -> Iterator[None]:
        """Its time counts from here: waiting for other rollouts is not the test's fault."""
        with self._machinery, self._watchdog.watching(request):
            token = _LANE.set(lane)
            try:
                yield
            finally:
                _LANE.reset(token)


class _Here(Worker):
    """The lanes of this process as a worker, which needs to be sent nothing but requests."""

    def __init__(self, name: str, put: Callable[[RolloutRequest], None]) -> None:
        super().__init__(name, None)
        self._put = put

    def run(self, request: RolloutRequest, before: object) -> None:
        self._put(request)


class LanesExecutor(WorkersExecutor):
    """Lanes in this process, behind the executor that serves workers: one, without a wire. A
    rollout that hangs ends the run: a thread cannot be killed, as a worker (``-n 1``) can."""

    def __init__(self, session: pytest.Session, *, lanes: int, timeout: float = 0.0) -> None:
        self._laid_out = SkillVersions(kept=lanes)
        super().__init__(self._laid_out)
        self._watchdog = Watchdog(timeout, self._give_up)
        self._lanes = Lanes(
            session, self._laid_out, self._deliver, lanes=lanes, watchdog=self._watchdog
        )
        self._worker = _Here("main", self._lanes.put)
        self._open = contextlib.ExitStack()
        self._open.enter_context(rollouts_only(session.config))
        self._open.enter_context(sigterm_interrupts())
        self._watchdog.start()
        self.welcome(self._worker, lanes)

    def next(self) -> Rollout:
        try:
            return super().next()
        except KeyboardInterrupt:
            # Nothing can interrupt the other threads: what they run is not waited for.
            self.stop("the session was interrupted")
            raise

    def close(self) -> list[str]:
        self.stop("the session has ended")
        self._watchdog.stop()
        stray = self._lanes.close()
        self._laid_out.close()
        self._open.close()
        return stray

    def _deliver(self, rollout: Rollout) -> None:
        self.finished(self._worker, rollout.request.key, rollout)

    def _give_up(self, request: RolloutRequest, message: str) -> None:
        self.stop(f"{message}; it cannot be interrupted here, with -n 1 it can be")
