"""The controller's side of the warm xdist workers.

The job (a training, an evaluation) runs in a thread of its own and blocks in ``Executor.next``;
the main thread stays in xdist's own loop, which asks the scheduler below whether all is done.
See docs/decisions/workers.md.
"""

from __future__ import annotations

import functools
import json
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.suite.executor import ExecutorClosed, Worker, WorkersExecutor
from pytest_skillopt.suite.internals.xdist import (
    adopt_restarts,
    wake_controller,
    wrap_shutdown,
)
from pytest_skillopt.suite.interrupts import sigterm_interrupts
from pytest_skillopt.suite.tasks import SkillTask
from pytest_skillopt.untrusted import logger, no_command

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence


_LOG = logger(__name__)
_SHOWN = 5


def check_agreement(facts: Mapping[str, Mapping[str, Any]]) -> str:
    """Compare what the workers said about themselves, by name; the tasks of all as JSON text.
    UsageError where one refuses or two have collected different tasks, Interrupted after errors
    during collection."""
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
    here, there = ({task["id"]: task for task in json.loads(said)} for said in (reference, tasks))
    odd = sorted(name for name in here | there if here.get(name) != there.get(name))
    shown = ", ".join(odd[:_SHOWN]) + ", ..." * (len(odd) > _SHOWN)
    return f"{first} and {other} have collected different tasks: {shown}"


class _Threads:
    """Threads for what is done on behalf of workers, kept for the next call."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)

    def run(self, function: Callable[[], None]) -> None:
        """In a thread that has nothing to do, else in a new one."""
        self._waiting.put(function)
        if not self._idle.acquire(blocking=False):
            threading.Thread(target=self._work, name="skillopt-service", daemon=True).start()

    def _work(self) -> None:
        while function := self._waiting.get():
            function()
            self._idle.release()
        self.close()

    def close(self) -> None:
        """End those that have nothing to do, and the others when they are done."""
        self._waiting.put(None)


_JOIN_PATIENCE = 30.0
"""Seconds that an interrupted job is given to save what it knows."""
_START_FAILURES = 3
"""Workers in a row that may die before their first word, for each worker asked for."""


class XdistRun:
    """The plugin of the controller that has a job done by warm workers, and their scheduler. It
    schedules no tests, it waits for the job.

    Args:
        job: called once, in a thread of its own, with the executor and the collected tasks; what
            it raises is raised again in the main thread.
        services: what workers may ask for, by name. Each is called in a thread of its own.
            Arguments and value are JSON.
        on_lost: told the prefix of a worker that has ended, to give up what it had asked for.
    """

    def __init__(
        self,
        config: pytest.Config,
        job: Callable[[WorkersExecutor, list[SkillTask]], None],
        *,
        services: Mapping[str, Callable[..., Any]],
        on_lost: Callable[[str], None] = lambda prefix: None,
    ) -> None:
        self._config = config
        self._job = job
        self._services = services
        self._on_lost = on_lost
        self._workers: dict[Any, Worker] = {}
        """By xdist's node, from its start to its end."""
        self._facts: dict[Worker, dict[str, Any]] = {}
        """What those that are up have said of themselves."""
        self._collected: set[Any] = set()
        self._expected = 0
        self._failed_starts = 0
        self._tasks = ""
        self._executor = WorkersExecutor()
        self._threads = _Threads()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._stray: list[str] = []
        self.deselected = 0
        """Other tests than tasks that the workers have left out; known when the job begins."""
        self.tests_finished = False

    # xdist's hooks, in the order in which they are called

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: Sequence[object]) -> None:
        self._expected = len(specs)
        adopt_restarts(self._config, self._stray.append)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Called for every worker that is started, replacements included."""
        channel = node.gateway.newchannel()
        worker = self._workers[node] = Worker(node.gateway.id, channel)
        node.workerinput["skillopt_channel"] = channel
        wrap_shutdown(node, worker.shut_down)
        channel.setcallback(functools.partial(self._receive, worker), endmarker=("end",))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self) -> XdistRun:
        return self

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        with sigterm_interrupts():
            try:
                value = yield
            except BaseException as error:
                self._end("the session was interrupted")
                if not isinstance(error, RuntimeError) or self._workers:
                    raise
                value = True  # xdist raises this once the last worker is gone
            else:
                self._end("no worker is left")
        if self._failure is not None:
            raise self._failure
        if self._thread is None:
            raise pytest.exit.Exception("no worker has come up", returncode=1)
        return value

    # what workers say, in execnet's receiver threads

    def _receive(self, worker: Worker, message: tuple[Any, ...]) -> None:
        kind, *rest = message
        if kind == "result":
            self._executor.finished(worker, *rest)
        elif kind == "leaving":
            self._executor.leaving(worker)
        elif kind == "ask":
            self._threads.run(functools.partial(self._answer, worker, *rest))
        elif kind == "stray":
            self._stray.append(f"{worker.name}: {rest[0]}")
        elif kind == "hello":
            self._greet(worker, json.loads(rest[0]))
        elif kind == "end":
            _LOG.info("worker %s has ended with %d rollouts", worker.name, len(worker.running))
            self._executor.lost(worker)
            self._on_lost(f"{worker.name}:")

    def _answer(self, worker: Worker, number: int, method: str, arguments: str) -> None:
        """Call a service for a worker; in a thread of its own, since a model takes its time."""
        value, error = "", ""
        _LOG.debug("worker %s waits for an answer to %s", worker.name, method)
        try:
            value = json.dumps(self._services[method](*json.loads(arguments)))
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
        """It is known already."""

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        self._collected.add(node)

    def schedule(self) -> None:
        """What they have collected, the workers say themselves, in their hello."""

    def mark_test_complete(self, node: Any, item_index: object, duration: float = 0) -> None:
        """Called for every ``wake_controller``, before ``tests_finished`` is looked at."""

    def remove_node(self, node: Any) -> None:
        """A node has ended. Returns None: what it was running is no test that has crashed."""
        self._collected.discard(node)
        worker = self._workers.pop(node, None)
        if worker is None or worker in self._facts or self.tests_finished:
            return
        self._failed_starts += 1
        _LOG.warning("worker %s died before it had collected; another takes its place", worker.name)
        if self._failed_starts > _START_FAILURES * self._expected:
            reason = f"{self._failed_starts} workers in a row died before they had collected"
            self._executor.stop(reason)
            raise pytest.exit.Exception(reason, returncode=1)

    # the course of the run

    def _greet(self, worker: Worker, facts: dict[str, Any]) -> None:
        """A worker is up: admit it, or begin where it is the last that was awaited."""
        with self._starting:
            self._facts[worker] = facts
            self._failed_starts = 0
            alive = [known for known in list(self._workers.values()) if not known.lost]
            up = [known for known in alive if known in self._facts]
            _LOG.info("worker %s is up, %d of %d", worker.name, len(up), self._expected)
            if self._thread is not None:
                self._admit(worker)
            elif len(up) >= self._expected:
                try:
                    self._start(up)
                except BaseException as error:
                    # Left in this thread of execnet's, it would leave the session waiting.
                    self._finish(error)

    def _start(self, workers: list[Worker]) -> None:
        facts = {worker.name: self._facts[worker] for worker in workers}
        self._tasks = check_agreement(facts)
        self.deselected = max(said.get("deselected", 0) for said in facts.values())
        tasks = [SkillTask.from_json(data) for data in json.loads(self._tasks)]
        self._thread = threading.Thread(
            target=self._work, args=(tasks,), name="skillopt-job", daemon=True
        )
        for worker in workers:
            self._admit(worker)
        self._thread.start()

    def _admit(self, worker: Worker) -> None:
        facts = self._facts[worker]
        try:
            check_agreement({"the others": {"tasks": self._tasks}, worker.name: facts})
        except (pytest.UsageError, KeyboardInterrupt) as error:
            self._executor.stop(f"the suite has changed during the run: {error}")
        else:
            self._executor.welcome(worker, facts["slots"])

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
        """Have the main thread end the session, with an exception where there is one."""
        self._failure = failure
        self.tests_finished = True
        for node in list(self._workers)[:1]:
            wake_controller(node)

    def _end(self, reason: str) -> None:
        self._executor.stop(reason)
        for worker in list(self._workers.values()):
            worker.send("stop")
        if self._thread is not None:
            self._thread.join(_JOIN_PATIENCE)
        self._threads.close()
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        for line in self._stray:
            if terminal is not None:
                terminal.write_line(no_command(line))
