"""What runs in an xdist worker: it waits for requests and answers each with a rollout.

Nothing here is imported by the controller, and nothing assumes that the two share a file system.

A message is a tuple whose first element is its kind; the rest are texts, bytes, numbers and
dictionaries of them. One execnet channel a worker carries all of it, beside xdist's own.
To the worker: ``skill`` (path, files by name in bytes, which need not be UTF-8), ``version`` (path,
version, content), ``run`` (request), ``answer`` (number, value, error), ``stop``.
To the controller: ``hello`` (facts), ``result`` (key, rollout), ``leaving``, ``ask`` (number,
method, arguments), ``stray`` (text).
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import queue
import signal
import threading
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.model import types
from pytest_skillopt.suite.context import shorten
from pytest_skillopt.suite.internals.xdist import worker_channel, worker_input
from pytest_skillopt.suite.interrupts import Watchdog, end_now, handling
from pytest_skillopt.suite.rollouts import InfraError, Rollout, RolloutRequest
from pytest_skillopt.suite.runner import RolloutRunner, SkillVersions, rollouts_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_skillopt.suite.lanes import Lanes
    from pytest_skillopt.suite.tasks import SkillTask


_SEND_PATIENCE = 5.0
"""Seconds that a process which is about to end waits for its other threads to have sent."""


class LostController(ConnectionError):
    """The controller is gone: nothing that this worker does will be heard."""


class Link:
    """A worker's end of its channel. Thread-safe."""

    def __init__(self, channel: Any, worker: str) -> None:
        self._channel = channel
        # execnet's socket gateways tear the stream when two threads send at once.
        self._sending = threading.Lock()
        self._numbers = itertools.count()
        self._asked: dict[int, queue.SimpleQueue[tuple[str, str]]] = {}
        self._lost = False
        self.dismissed = False
        """The controller has said that it wants nothing more."""
        self.muted = False
        """This worker was interrupted: what its rollouts come to from now on is not sent."""
        self._on_lost: Callable[[], None] | None = None
        self._on_dismissed: Callable[[], None] | None = None
        self.inbox: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        """What the controller said, other than answers; ``("stop",)`` when it is gone."""
        self.prefix = f"{worker}:"
        """Begins the name of everything this worker asks for, so that it can be given up."""

    def open(self, on_lost: Callable[[], None], on_dismissed: Callable[[], None]) -> None:
        """Begin to receive. ``on_lost`` is called when the controller goes without a word,
        ``on_dismissed`` when it wants nothing more, after all questions were answered."""
        self._on_lost, self._on_dismissed = on_lost, on_dismissed
        self._channel.setcallback(self._receive, endmarker=None)

    def send(self, *message: Any, patience: float = -1) -> None:
        """``patience``: seconds to wait for another thread that is sending; -1: as long as it
        takes. OSError where the controller is gone."""
        if self._sending.acquire(timeout=patience):
            try:
                self._channel.send(message)
            finally:
                self._sending.release()

    def ask(self, method: str, *arguments: Any) -> Any:
        """Have the controller call one of its services, with JSON values.

        Raises:
            ModelError: what the service raised; ModelFault in the place of other exceptions.
            LostController: no answer will come.
        """
        number = next(self._numbers)
        answer: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._asked[number] = answer
        try:
            if self._lost or self.dismissed:
                raise LostController("the controller is gone")
            self.send("ask", number, method, json.dumps(arguments))
            value, error = answer.get()
        except OSError as gone:
            raise LostController(f"the controller is gone ({gone})") from gone
        finally:
            del self._asked[number]
        if error:
            raise _restored(json.loads(error))
        return json.loads(value)

    def _receive(self, message: tuple[Any, ...] | None) -> None:
        """Runs in execnet's receiver thread."""
        if message is None:
            self._lost = True
            self._answer_none()
            self.inbox.put(("stop",))
            if self._on_lost is not None and not self.dismissed:
                self._on_lost()
        elif message[0] == "answer":
            _, number, value, error = message
            if number in self._asked:
                self._asked[number].put((value, error))
        else:
            dismissed = message[0] == "stop" and not self.dismissed
            self.dismissed |= dismissed
            self.inbox.put(message)
            if dismissed:
                self._answer_none()
                if self._on_dismissed is not None:
                    self._on_dismissed()

    def _answer_none(self) -> None:
        """Whoever still waits is a rollout that nobody wants any more."""
        gone = json.dumps({"type": "LostController", "message": "the controller is gone"})
        for waiting in list(self._asked.values()):
            waiting.put(("", gone))


def _restored(error: dict[str, Any]) -> Exception:
    kind, message = error["type"], error["message"]
    if kind == "ModelFault":
        return types.ModelFault(message, fatal=error["fatal"])
    cls = LostController if kind == "LostController" else getattr(types, kind, None)
    if isinstance(cls, type) and issubclass(cls, types.ModelError | LostController):
        return cls(message)
    return types.ModelFault(f"the controller could not answer ({kind}: {message})", fatal=True)


_LINK = pytest.StashKey[Link]()
_LINGER = 0.5
"""Seconds that a worker which is done waits for threads that a test has left behind."""
_INTERRUPT_AFTER, _END_AFTER = 0.2, 1.2
"""Seconds after which a rollout that nobody wants any more is interrupted, and ended for good."""
_ORPHAN = 5.0
"""Seconds that a worker has to end by itself when its controller was killed."""


def link(config: pytest.Config) -> Link:
    """This worker's connection to the controller, to ask its services."""
    if _LINK not in config.stash:
        worker = worker_input(config)["workerid"]
        config.stash[_LINK] = Link(worker_channel(config), worker)
    return config.stash[_LINK]


class WorkerLoop:
    """The plugin that takes the place of xdist's loop in a worker.

    Args:
        collect: from the collected items to the tasks among them; may raise ``UsageError``.
        others: how many other tests were deselected.
        timeout: seconds after which a rollout ends together with this worker; 0: never.
    """

    def __init__(
        self,
        config: pytest.Config,
        collect: Callable[[list[pytest.Item]], list[SkillTask]],
        *,
        lanes: int = 1,
        timeout: float = 0.0,
        others: Callable[[], int] = lambda: 0,
    ) -> None:
        self._link = link(config)
        self._lanes = lanes
        self._collect = collect
        self._others = others
        self._worker: str = worker_input(config)["workerid"]
        self._versions = SkillVersions(kept=lanes)
        self._watchdog = Watchdog(timeout, self._give_up)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        session.config.option.no_summary = True  # nobody reads it, and plugins take their time
        self._link.open(_end_soon, self._abandon)
        with contextlib.suppress(OSError), handling(signal.SIGINT, self._interrupted):
            facts: dict[str, Any] = {"slots": self._lanes, "collection_errors": session.testsfailed}
            engine, tasks = None, []
            try:
                tasks = [task.to_json() for task in self._collect(list(session.items))]
                engine = self._engine(session)
            except pytest.UsageError as error:
                facts["refusal"] = str(error)
            facts |= {"tasks": json.dumps(tasks, sort_keys=True), "deselected": self._others()}
            self._link.send("hello", json.dumps(facts))
            if engine is not None:
                with rollouts_only(session.config):
                    self._serve(engine)
            while self._link.inbox.get()[0] != "stop":
                continue
        return True

    def _interrupted(self, signum: int, frame: object) -> None:
        """Leave it to the controller, which a terminal interrupts as well, to end the session."""
        self._link.muted = True
        if self._link.dismissed:
            raise KeyboardInterrupt

    def _abandon(self) -> None:
        """End the rollouts that do not end by themselves now that they get no answers."""
        if self._watchdog.watched:
            _later(_INTERRUPT_AFTER, self._interrupt)
            _later(_END_AFTER, self._end)

    def _interrupt(self) -> None:
        """A lane cannot be interrupted, nor what is not in the main thread."""
        if self._watchdog.watched and self._lanes == 1:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _end(self) -> None:
        if self._watchdog.watched:
            end_now()

    @pytest.hookimpl(tryfirst=True)
    def pytest_unconfigure(self) -> None:
        """A thread that a test left behind must not keep the worker from ending."""
        gc.freeze()  # pytest collects garbage ten times now, which takes a worker 0.2 s
        main = threading.main_thread()
        left = [t for t in threading.enumerate() if t is not main and not t.daemon]
        if left:
            _later(_LINGER, os._exit, 0)

    def _serve(self, engine: RolloutRunner | Lanes) -> None:
        put = self._run_here(engine) if isinstance(engine, RolloutRunner) else engine.put
        self._watchdog.start()
        try:
            for request in self._requests():
                put(request)
        finally:
            self._watchdog.stop()
            for line in engine.close():
                self._link.send("stray", line)
            self._versions.close()

    def _engine(self, session: pytest.Session) -> RolloutRunner | Lanes:
        if self._lanes == 1:
            return RolloutRunner(session, self._versions, worker=self._worker)
        from pytest_skillopt.suite.lanes import Lanes

        return Lanes(
            session,
            self._versions,
            self._deliver,
            lanes=self._lanes,
            worker=self._worker,
            watchdog=self._watchdog,
        )

    def _run_here(self, runner: RolloutRunner) -> Callable[[RolloutRequest], None]:
        """Runs each rollout at once, in the main thread."""

        def put(request: RolloutRequest) -> None:
            try:
                with self._watchdog.watching(request), self._watchdog.backed():
                    rollout = runner.run(request)
            except KeyboardInterrupt:
                if self._link.dismissed:
                    return
                raise
            except Exception:
                # Let out, it would end the session as if the user had interrupted it.
                error = InfraError("internal", shorten(traceback.format_exc(), 2_000))
                rollout = Rollout(request, "error", error=error)
            self._deliver(rollout)

        return put

    def _requests(self) -> Iterator[RolloutRequest]:
        while True:
            kind, *rest = self._link.inbox.get()
            if kind == "run":
                yield RolloutRequest(**json.loads(rest[0]))
            elif kind in ("skill", "version"):
                self._versions.receive(kind, *rest)
            elif kind == "stop":
                self._link.inbox.put(("stop",))
                return

    def _deliver(self, rollout: Rollout) -> None:
        # When the controller is gone, a stop is in the inbox already.
        with contextlib.suppress(OSError):
            if not self._link.muted:
                self._link.send("result", rollout.request.key, json.dumps(rollout.to_json()))

    def _give_up(self, request: RolloutRequest, message: str) -> None:
        """End the worker: nothing else stops a rollout that hangs, or what it started."""
        error = InfraError("timeout", message)
        rollout = Rollout(request, "error", error=error, worker=self._worker)
        with contextlib.suppress(OSError):
            self._link.send("leaving")
        self._deliver(rollout)
        end_now()


def _end_soon() -> None:
    """Without a controller, a rollout that still runs is of no use to anybody."""
    _later(_ORPHAN, end_now)


def _later(seconds: float, function: Callable[..., object], *arguments: object) -> None:
    timer = threading.Timer(seconds, function, arguments)
    timer.daemon = True
    timer.start()
