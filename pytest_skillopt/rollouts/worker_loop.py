"""The loop of an xdist worker, which answers each request with a rollout.

The controller does not import this module, and the two need not share a file system.

A message is a tuple of its kind and texts, bytes, numbers or dictionaries of them. Each worker has
one execnet channel for all messages, besides xdist's own.
To the worker: ``skill`` (path, files by name in bytes, which need not be UTF-8), ``version`` (path,
version, content), ``run`` (request), ``answer`` (number, value, error), ``stop``.
To the controller: ``hello`` (facts), ``result`` (key, rollout), ``leaving``, ``ask`` (number,
method, arguments), ``stray`` (text), ``log`` (name, level, file, line, time, text).
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import queue
import signal
import threading
import time
from concurrent.futures import Future
from dataclasses import asdict
from json import dumps, loads  # of its own: messages come and go while a test has patched json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.hookresults import PluginError, naming
from pytest_skillopt.model import types
from pytest_skillopt.processes import kill_descendants
from pytest_skillopt.rollouts import interrupts
from pytest_skillopt.rollouts.folders import SkillVersions
from pytest_skillopt.rollouts.rollout import Rollout, RolloutRequest
from pytest_skillopt.rollouts.runner import RolloutRunner, rollouts_only
from pytest_skillopt.tasks.task import LeftOut, describe_tasks, keep_tasks
from pytest_skillopt.untrusted import logger, printable, redact, shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt.rollouts.runner import ConcurrentRunner
    from pytest_skillopt.settings import Settings

_LOG = logger(__name__)


class Link:
    """A worker's end of its channel. Thread-safe."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        # execnet's socket gateways corrupt the stream if two threads send at once.
        self._sending = threading.Lock()
        self._numbers = itertools.count()
        self._asked: dict[int, Future[str]] = {}
        self._on_end: Callable[[], None] = lambda: None
        self.ended = ""
        """``stop`` after the controller's stop message, ``gone`` if it disappeared without one."""
        self.inbox: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        """Messages of the controller other than answers; ``("stop",)`` if it is gone.

        Beside them, of this process: ``("finished", rollout)`` from threads, ``("interrupted",)``.
        """

    def open(self, on_end: Callable[[], None]) -> None:
        """Begin to receive. ``on_end`` is called once, after the controller has stopped or is gone.

        By then all pending ``ask`` calls have raised.
        """
        self._on_end = on_end
        self._channel.setcallback(self._receive, endmarker=("gone",))

    def send(self, *message: Any) -> None:
        """Send a message; raise OSError if the controller is gone."""
        with self._sending:
            self._channel.send(message)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a service of the controller and return its result.

        The arguments are JSON values or dataclasses of them.

        Raises:
            ModelError: the service raised it; other exceptions become a ModelFault.
            ConnectionError: the controller is gone or has stopped.
        """
        number = next(self._numbers)
        self._asked[number] = answer = Future[str]()
        try:
            if not self.ended:
                self.send("ask", number, method, dumps(arguments, default=asdict))
                return loads(answer.result())
        except OSError as gone:
            raise ConnectionError(f"the controller is gone ({gone})") from gone
        finally:
            self._asked.pop(number, None)
        raise ConnectionError("the controller is gone")

    def _receive(self, message: tuple[Any, ...]) -> None:
        """Handle a message, in execnet's receiver thread."""
        kind, *rest = message
        if kind == "answer":
            number, value, error = rest
            answer = self._asked.pop(number, None)
            if answer is not None and error:
                answer.set_exception(_restored(*loads(error)))
            elif answer is not None:
                answer.set_result(value)
        elif kind in ("stop", "gone"):
            ended = self.ended
            self.ended = self.ended or kind
            while self._asked:
                # Only rollouts that are no longer wanted still wait.
                self._asked.popitem()[1].set_exception(ConnectionError(kind))
            self.inbox.put(("stop",))
            if not ended:
                self._on_end()
        else:
            self.inbox.put(message)


_MOST_LINES, _LONGEST_LINE = 20_000, 4_000
"""Log lines of a worker that are carried, and characters of each."""


def _keeps_log(config: pytest.Config) -> bool:
    """Return whether pytest writes log lines to a file or, as they come, to the terminal."""
    if not config.pluginmanager.hasplugin("logging"):
        return False
    chosen = (config.getoption(name, None) for name in ("log_file", "log_cli_level"))
    return any(chosen) or any(config.getini(name) for name in ("log_file", "log_cli"))


class _LogCarrier(logging.Handler):
    """Sends a worker's log lines to the controller, whose log shows them."""

    def __init__(self, send: Callable[..., None]) -> None:
        super().__init__()
        self._send = send
        self._left = _MOST_LINES
        self._pid = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        if os.getpid() != self._pid or self._left <= 0:
            return  # A forked process must not write to the channel.
        self._left -= 1
        try:
            text = self.format(record) if self._left else "further lines are left out"
            text = shorten(redact(printable(text)), _LONGEST_LINE)
            place = shorten(record.filename, _LONGEST_LINE), record.lineno, record.created
            self._send("log", shorten(record.name, _LONGEST_LINE), record.levelno, *place, text)
        except OSError:
            pass  # The controller is gone.
        except Exception:
            self.handleError(record)


def _restored(kind: str, message: str, fatal: bool) -> Exception:
    if kind == "ModelFault":
        return types.ModelFault(message, fatal=fatal)
    cls = getattr(types, kind, None)
    if isinstance(cls, type) and issubclass(cls, types.ModelError):
        return cls(message)
    return types.ModelFault(f"the controller could not answer ({kind}: {message})", fatal=True)


_LINK = pytest.StashKey[Link]()
_LINGER = 0.5
"""Seconds that a finished worker waits for threads that a test has left behind."""
_INTERRUPT_AFTER, _END_AFTER = 0.2, 1.0
"""Seconds after which an unwanted rollout is interrupted, and then its process ended."""
_ALONE = 5.0
"""Seconds that an interrupted worker has to hear that the session ends."""
_ORPHAN = 5.0
"""Seconds that a worker has to end by itself after its controller was killed."""


def link(config: pytest.Config) -> Link:
    """Return this worker's connection to the controller."""
    if _LINK not in config.stash:
        config.stash[_LINK] = Link(vars(config)["workerinput"]["skillopt_channel"])
    return config.stash[_LINK]


class WorkerLoop:
    """The plugin that replaces xdist's loop in a worker."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._link = link(config)
        self._left_out = LeftOut()
        self._worker: str = vars(config)["workerinput"]["workerid"]
        self._versions = SkillVersions(kept=settings.lanes)
        self._muted = False
        """True after an interrupt: no more rollouts are sent."""
        self._watchdog = interrupts.Watchdog(settings.timeout, self._give_up)
        self._keeps_log = _keeps_log(config)
        if self._keeps_log:
            config.option.log_file = os.devnull  # The file is the controller's to write.
        config.option.loadgroup = False  # else xdist appends the group to node ids

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self._left_out = keep_tasks(self._config, items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        session.config.option.no_summary = True  # not shown, and some plugins are slow at it
        self._link.open(self._give_up_rollouts)
        if self._keeps_log:
            logging.getLogger().addHandler(_LogCarrier(self._link.send))
        with interrupts.handling(signal.SIGINT, self._interrupted):
            slots = self._settings.lanes
            errors = session.testsfailed
            facts: dict[str, Any] = {"slots": slots, "collection_errors": errors}
            engine = None
            tasks = []
            try:
                found = describe_tasks(self._config, self._settings, session.items)
                tasks = [task.to_json() for task in found]
                engine = self._engine(session)
            except pytest.UsageError as error:
                facts["refusal"] = str(error)
            left_out = asdict(self._left_out)
            facts |= {"tasks": dumps(tasks, sort_keys=True), "left_out": left_out}
            self._tell("hello", dumps(facts))
            if engine is None:
                self._link.inbox.get()
                return True
            with rollouts_only(session.config):
                self._watchdog.start()
                try:
                    while self._obey(engine, *self._next()):
                        pass
                finally:
                    self._watchdog.stop()
                    stray = self._close(engine)
                    if self._watchdog.watched:
                        # A rollout is still running in a thread: end the processes it started.
                        kill_descendants()
                    for line in stray:
                        self._tell("stray", line)
                    self._versions.close()
        return True

    def _tell(self, *message: Any) -> None:
        """Send a message unless the controller is gone: then the inbox has a stop message."""
        with contextlib.suppress(OSError):
            self._link.send(*message)

    def _interrupted(self, signum: int, frame: object) -> None:
        """Leave the end of the session to the controller, which a terminal interrupts as well."""
        self._muted = True
        self._link.inbox.put(("interrupted",))  # wakes the main thread if it waits
        if self._link.ended == "stop" and self._settings.lanes == 1:
            raise KeyboardInterrupt  # a worker with several rollouts waits for them instead

    def _give_up_rollouts(self) -> None:
        """End rollouts that do not end by themselves without answers.

        If the controller was killed, end the worker and all processes that it started.
        """
        if self._link.ended == "gone":
            _later(_ORPHAN, interrupts.end_now)
        elif self._watchdog.watched:
            _later(_INTERRUPT_AFTER, self._end_rollouts)

    def _end_rollouts(self) -> None:
        if self._watchdog.watched and self._settings.lanes == 1:
            # Only the main thread can be interrupted.
            interrupts.interrupt_main_thread()
        time.sleep(_END_AFTER)
        if self._watchdog.watched:
            interrupts.end_now()

    @pytest.hookimpl(tryfirst=True)
    def pytest_unconfigure(self) -> None:
        """End the worker even if a test left a thread behind."""
        gc.freeze()  # pytest now collects garbage ten times, which takes 0.2 s otherwise
        main = threading.main_thread()
        left = [t for t in threading.enumerate() if t is not main and not t.daemon]
        if left:
            _later(_LINGER, os._exit, 0)

    def _engine(self, session: pytest.Session) -> RolloutRunner | ConcurrentRunner:
        runner = RolloutRunner(session, self._versions, worker=self._worker)
        concurrent: ConcurrentRunner | None = self._config.hook.pytest_skillopt_runner(
            runner=runner,
            settings=self._settings,
            watchdog=self._watchdog,
            deliver=self._finish,
        )
        return concurrent or runner

    def _next(self) -> tuple[Any, ...]:
        """Return the next message; end an interrupted worker if the controller goes on."""
        timeout = _ALONE if self._muted else None
        try:
            return self._link.inbox.get(timeout=timeout)
        except queue.Empty:
            self._tell("leaving")
            interrupts.end_now()

    def _obey(self, engine: RolloutRunner | ConcurrentRunner, kind: str, *told: Any) -> bool:
        """Carry out a message of the inbox; return False on ``stop``."""
        if kind == "skill":
            skill, files = told
            self._versions.add_skill(skill, {os.fsdecode(n): data for n, data in files.items()})
        elif kind == "version":
            self._versions.add_version(*told)
        elif kind == "run":
            request = RolloutRequest(**loads(told[0]))
            _LOG.debug("%s runs %s, sample %d", self._worker, request.task, request.index)
            if isinstance(engine, RolloutRunner):
                self._run_here(engine, request)
            else:
                self._put(engine, request)
        elif kind == "finished":
            self._deliver(*told)
        return kind != "stop"

    def _put(self, runner: ConcurrentRunner, request: RolloutRequest) -> None:
        """Hand a request to a plugin's runner; an exception of it ends the run, by its name."""
        try:
            with naming(self._config.pluginmanager):
                runner.put(request)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            named = isinstance(error, PluginError)
            said = str(error) if named else f"pytest_skillopt_runner: {error!r}"
            self._deliver(Rollout.of_error(request, "internal", said, fatal=True))

    def _close(self, runner: RolloutRunner | ConcurrentRunner) -> list[str]:
        """Close a runner; return the errors between rollouts, that of a plugin's own included."""
        try:
            with naming(self._config.pluginmanager):
                return list(runner.close() or ())
        except Exception as error:
            return [str(error)]

    def _run_here(self, runner: RolloutRunner, request: RolloutRequest) -> None:
        try:
            with self._watchdog.watching(request):
                rollout = interrupts.settled(lambda: runner.run(request))
        except KeyboardInterrupt:
            if not self._link.ended:
                raise
        else:
            self._deliver(rollout)

    def _finish(self, rollout: object) -> None:
        """Have the main thread deliver a rollout that ran in another thread.

        The main thread handles an interrupt before all else. A terminal interrupts the processes of
        a test as well, and another thread sees their end first now and then.
        """
        if not isinstance(rollout, Rollout):
            given = type(rollout).__name__
            raise TypeError(f"deliver was given a {given}: a Rollout is expected (docs/hooks.md)")
        self._link.inbox.put(("finished", rollout))

    def _deliver(self, rollout: Rollout) -> None:
        if not self._muted:
            self._tell("result", rollout.request.key, dumps(rollout.to_json()))

    def _give_up(self, request: RolloutRequest, message: str) -> None:
        """End the worker: nothing else stops a rollout that hangs and the processes it started."""
        self._tell("leaving")
        self._deliver(Rollout.of_error(request, "timeout", message, worker=self._worker))
        interrupts.end_now()


def _later(seconds: float, function: Callable[..., object], *arguments: object) -> None:
    timer = threading.Timer(seconds, function, arguments)
    timer.daemon = True
    timer.start()
