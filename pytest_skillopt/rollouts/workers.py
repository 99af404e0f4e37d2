"""The controller of the xdist workers, which stay up during a run.

The job (a training, an evaluation) runs in a separate thread and blocks in ``Executor.next``; the
main thread stays in xdist's own loop, which asks the scheduler below whether the run is finished.
See docs/decisions/workers.md.
"""

from __future__ import annotations

import functools
import json
import logging
import signal
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_skillopt import internals
from pytest_skillopt.rollouts.executor import ExecutorClosed, Worker, WorkersExecutor, write_stray
from pytest_skillopt.rollouts.interrupts import handle
from pytest_skillopt.tasks.task import LEFT_OUT, LeftOut, SkillTask
from pytest_skillopt.untrusted import logger
from pytest_skillopt.words import named

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence


_LOG = logger(__name__)


class LogLine(NamedTuple):
    """Log line of a worker, as its message ``log`` has it."""

    name: str
    level: int
    file: str
    number: int
    when: float
    """Seconds since the epoch."""
    text: str


def check_agreement(facts: Mapping[str, Mapping[str, Any]]) -> str:
    """Check that all workers, by name, have collected the same tasks.

    Returns:
        The tasks as JSON text.

    Raises:
        UsageError: a worker refuses, or two have collected different tasks.
        Interrupted: there were errors during collection.
    """
    for said in facts.values():
        errors = said.get("collection_errors", 0)
        if errors:
            raise pytest.Session.Interrupted(
                f"{errors} error{'s' if errors > 1 else ''} during collection"
            )
        if said.get("refusal"):
            raise pytest.UsageError(said["refusal"])
    (first, reference), *others = ((name, said["tasks"]) for name, said in facts.items())
    for other, tasks in others:
        if tasks != reference:
            raise pytest.UsageError(_difference(first, reference, other, tasks))
    return str(reference)


def _difference(first: str, reference: str, other: str, tasks: str) -> str:
    here = {task["id"]: task for task in json.loads(reference)}
    there = {task["id"]: task for task in json.loads(tasks)}
    odd = sorted(name for name in here | there if here.get(name) != there.get(name))
    return f"{first} and {other} have collected different tasks: {named(odd, 5)}"


_JOIN_PATIENCE = 30.0
"""Seconds that an interrupted job has to save its state."""
_OVERDUE = 10.0
"""Seconds after the time-out, at which a worker ends itself, that it has to say so."""
_START_FAILURES = 3
"""Allowed number of consecutive failed starts per requested worker."""


class XdistRun:
    """The controller's plugin and xdist scheduler: it schedules no tests but waits for a job.

    Args:
        job: called once, in a separate thread, with the executor and the collected tasks; its
            exception is raised again in the main thread.
        timeout: seconds of a rollout after which its worker ends itself; 0: never.
    """

    def __init__(
        self,
        config: pytest.Config,
        job: Callable[[WorkersExecutor, list[SkillTask]], None],
        timeout: float,
    ) -> None:
        self._config = config
        self._timeout = timeout
        self._job = job
        self._workers: dict[Any, Worker] = {}
        """Workers from start to end, by xdist's node."""
        self._collected: set[Any] = set()
        self._expected = 0
        self._failed_starts = 0
        self._tasks = ""
        self._executor = WorkersExecutor()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._stray: list[str] = []
        self.tests_finished = False
        self._over = threading.Event()

    # xdist's hooks, in the order in which they are called

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: Sequence[object]) -> None:
        self._expected = len(specs)
        internals.adopt_restarts(self._config, self._go_on_without)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Open the channel of a worker that is started; replacements have one, too."""
        channel = node.gateway.newchannel()
        worker = self._workers[node] = Worker(node.gateway.id, channel)
        node.workerinput["skillopt_channel"] = channel
        internals.wrap_shutdown(node, worker.shut_down)
        channel.setcallback(functools.partial(self._receive, worker), endmarker=("end",))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self) -> XdistRun:
        return self

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        handle(self._config, signal.SIGTERM, self._interrupt)
        try:
            value = yield
        except BaseException as error:
            self._end("the session was interrupted")
            if not isinstance(error, RuntimeError) or self._workers:
                raise
            value = True  # xdist raises RuntimeError after the last worker has gone
        else:
            self._end("no worker is left")
        if self._failure is not None:
            raise self._failure
        if self._thread is None:
            raise pytest.exit.Exception("no worker has started", returncode=1)
        # A short job may be done before xdist hears what was collected, and it counts no more then.
        session.testscollected = session.testscollected or len(json.loads(self._tasks))
        return value

    def _interrupt(self, signum: int, frame: object) -> None:
        if not self._executor.ended:  # a CI sends it after SIGINT, while the report is written
            raise KeyboardInterrupt("SIGTERM")

    # messages of workers, in execnet's receiver threads

    def _receive(self, worker: Worker, message: tuple[Any, ...]) -> None:
        kind, *rest = message
        if kind == "result":
            self._executor.finished(worker, *rest)
        elif kind == "leaving":
            self._executor.leaving(worker)
        elif kind == "ask":
            # A model may be slow; a thread for its call costs a tenth of a millisecond.
            name = "skillopt-service"
            about = (worker, *rest)
            threading.Thread(target=self._answer, args=about, name=name, daemon=True).start()
        elif kind == "stray":
            self._stray.append(f"{worker.name}: {rest[0]}")
        elif kind == "log":
            self._log(worker, LogLine(*rest))
        elif kind == "hello":
            self._greet(worker, json.loads(rest[0]))
        elif kind == "end":
            _LOG.info("worker %s has ended with %d rollouts", worker.name, len(worker.running))
            self._executor.lost(worker)
            self._executor.on_lost(worker.name)

    def _log(self, worker: Worker, line: LogLine) -> None:
        """Repeat a worker's log line in this process."""
        logger = logging.getLogger(line.name)
        if logger.isEnabledFor(line.level):
            words = f"{worker.name}: {line.text}"
            place = line.file, line.number
            record = logging.LogRecord(line.name, line.level, *place, words, None, None)
            record.created = line.when
            logger.handle(record)

    def _answer(self, worker: Worker, number: int, method: str, arguments: str) -> None:
        """Call a service for a worker."""
        value = ""
        error = ""
        _LOG.debug("worker %s waits for an answer to %s", worker.name, method)
        try:
            service = self._executor.services[method]
            value = json.dumps(service(worker.name, *json.loads(arguments)))
        except Exception as raised:
            fatal = getattr(raised, "fatal", False)
            error = json.dumps([type(raised).__name__, str(raised), fatal])
        worker.send("answer", number, value, error)

    # xdist's scheduling protocol, in the main thread

    @property
    def nodes(self) -> list[Any]:
        return list(self._workers)

    @property
    def collection_is_completed(self) -> bool:
        return len(self._collected) >= self._expected

    has_pending = False

    def add_node(self, node: Any) -> None:
        """Do nothing: ``pytest_configure_node`` has added the node."""

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        self._collected.add(node)

    def schedule(self) -> None:
        """Do nothing: the workers send their tasks in their hello."""

    def mark_test_complete(self, node: Any, item_index: object, duration: float = 0) -> None:
        """Do nothing: ``wake_controller`` calls this so that ``tests_finished`` is read."""

    def remove_node(self, node: Any) -> None:
        """Handle the end of a node; return None, since its rollouts are not crashed tests."""
        self._collected.discard(node)
        worker = self._workers.pop(node, None)
        if worker is None or worker.facts or self.tests_finished:
            return
        self._failed_starts += 1
        _LOG.warning("worker %s died before it had collected; another replaces it", worker.name)
        if self._failed_starts > _START_FAILURES * self._expected:
            reason = f"{self._failed_starts} workers in a row died before they had collected"
            self._executor.stop(reason)
            raise pytest.exit.Exception(reason, returncode=1)

    # the course of the run

    def _greet(self, worker: Worker, facts: dict[str, Any]) -> None:
        """Admit a worker that is up; begin if it is the last expected one."""
        with self._starting:
            worker.facts = facts
            self._failed_starts = 0
            _LOG.info("worker %s is up, %d of %d", worker.name, len(self._up()), self._expected)
            if self._thread is not None:
                self._admit(worker)
            self._begin_if_complete()

    def _go_on_without(self, reason: str) -> None:
        """Expect one worker less: it cannot be started again; begin if it was the last awaited."""
        with self._starting:
            self._stray.append(reason)
            self._expected -= 1
            self._begin_if_complete()

    def _up(self) -> list[Worker]:
        return [w for w in list(self._workers.values()) if w.facts and not w.lost]

    def _begin_if_complete(self) -> None:
        up = self._up()
        if self._thread is None and up and len(up) >= self._expected:
            try:
                self._start(up)
            except BaseException as error:
                # Raised in a thread of execnet, it would leave the session waiting.
                self._finish(error)

    def _start(self, workers: list[Worker]) -> None:
        facts = {worker.name: worker.facts for worker in workers}
        self._tasks = check_agreement(facts)
        left_out = (LeftOut(**said["left_out"]) for said in facts.values() if "left_out" in said)
        self._config.stash[LEFT_OUT] = max(left_out, key=lambda each: each.count)
        tasks = [SkillTask.from_json(data) for data in json.loads(self._tasks)]
        self._thread = threading.Thread(
            target=self._work, args=(tasks,), name="skillopt-job", daemon=True
        )
        for worker in workers:
            self._admit(worker)
        self._thread.start()
        if self._timeout:
            threading.Thread(target=self._watch, name="skillopt-overdue", daemon=True).start()

    def _watch(self) -> None:
        """Kill workers that do not end themselves at the time-out.

        They were stopped, or compiled code keeps the interpreter's lock, such as an endlessly
        backtracking regular expression, which blocks every Python thread.
        """
        limit = self._timeout + _OVERDUE
        while not self._over.wait(1.0):
            for worker in self._executor.overdue(limit):
                worker.end = f"did not answer within {limit:g} s and was replaced"
                for node in [node for node, one in self._workers.items() if one is worker]:
                    internals.kill_worker(node)

    def _admit(self, worker: Worker) -> None:
        try:
            check_agreement({"the others": {"tasks": self._tasks}, worker.name: worker.facts})
        except (pytest.UsageError, KeyboardInterrupt) as error:
            self._executor.stop(f"the suite has changed during the run: {error}")
        else:
            self._executor.welcome(worker, worker.facts["slots"])

    def _work(self, tasks: list[SkillTask]) -> None:
        try:
            self._job(self._executor, tasks)
        except ExecutorClosed as closed:
            self._finish(pytest.exit.Exception(str(closed), returncode=1))
        except BaseException as error:
            self._finish(error)
        else:
            self._finish(None)

    def _finish(self, failure: BaseException | None) -> None:
        """Make the main thread end the session, with the exception if there is one."""
        self._failure = failure
        self.tests_finished = True
        self._over.set()
        for node in list(self._workers)[:1]:
            internals.wake_controller(node)

    def _end(self, reason: str) -> None:
        self._over.set()
        self._executor.stop(reason)
        for worker in list(self._workers.values()):
            worker.send("stop")
        if self._thread is not None:
            self._thread.join(_JOIN_PATIENCE)
        write_stray(self._config, self._stray)
