"""The controller's side of the warm xdist workers. The only module that knows pytest-xdist.

The job (a training, an evaluation) runs in a thread of its own and blocks in ``Executor.next``;
the main thread stays in xdist's own loop, which asks the scheduler below whether all is done.
See docs/decisions/warm-workers.md.
"""

from __future__ import annotations

import contextlib
import functools
import json
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.suite.executor import ExecutorClosed, Worker, WorkersExecutor
from pytest_skillopt.suite.internals.xdist import (
    adopt_restarts,
    check_node,
    wake_controller,
    wrap_shutdown,
)
from pytest_skillopt.suite.interrupts import sigterm_interrupts
from pytest_skillopt.suite.tasks import SkillTask
from pytest_skillopt.untrusted import no_command

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path


_SHOWN = 5


def check_agreement(facts: Mapping[str, Mapping[str, Any]]) -> str:
    """Compare what the workers said about themselves; the tasks of all as JSON text.

    Args:
        facts: by the worker's name: ``tasks`` (JSON text), ``refusal`` (a usage error's text, or
            empty) and ``collection_errors`` (how many).

    Raises:
        pytest.UsageError: a worker refuses, or two have collected different tasks.
        pytest.Session.Interrupted: a worker met errors during collection.
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
    changed = [name for name in here.keys() & there.keys() if here[name] != there[name]]
    lines = [f"{first} and {other} have collected different tasks"]
    lines += _listed(f"only {first}", sorted(here.keys() - there.keys()))
    lines += _listed(f"only {other}", sorted(there.keys() - here.keys()))
    lines += _listed("not the same on both", sorted(changed))
    if len(lines) == 1:
        lines.append("in another order; parameters made from a set have none of their own")
    return "\n  ".join(lines)


def _listed(title: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [f"{title}: {', '.join(names[:_SHOWN])}{more}"]


_JOIN_PATIENCE = 30.0
"""Seconds that an interrupted job is given to save what it knows."""
_HELLO_PATIENCE = 60.0
"""Seconds between the end of the collection and a worker's first word to us."""
_START_FAILURES = 3
"""Workers in a row that may die before their first word, for each worker asked for."""


class _Member:
    """An xdist node and the worker we talk to on it."""

    def __init__(self, node: Any, channel: Any) -> None:
        self.node = node
        self.worker = Worker(node.gateway.id, channel)
        self.facts: dict[str, Any] | None = None
        """What it said first; None until then."""
        self.admitted = False


class XdistRun:
    """The plugin of the controller that has a job done by warm workers.

    Register it before pytest's session starts; the workers register a ``remote.WorkerLoop``.
    """

    def __init__(
        self,
        config: pytest.Config,
        job: Callable[[WorkersExecutor, list[SkillTask]], None],
        *,
        services: Mapping[str, Callable[..., Any]] | None = None,
        on_lost: Callable[[str], None] | None = None,
        shared: Path | None = None,
    ) -> None:
        """Args:
        job: called once, in a thread of its own, with the executor and the collected tasks; what
            it raises is raised again in the main thread.
        services: what workers may ask for, by name. Called in receiver threads: they must neither
            block nor take long. Arguments and value are JSON.
        on_lost: told the prefix of a worker that has ended, to give up what it had asked for.
        shared: a directory, made if need be; ``remote.shared_directory`` tells a worker
            whether it has the same one.
        """
        self._config = config
        self._job = job
        self._services: Mapping[str, Callable[..., Any]] = {} if services is None else services
        self._on_lost = on_lost
        self._shared = shared
        self._nonce: Path | None = None
        self._members: dict[Any, _Member] = {}
        self._expected = 0
        self._failed_starts = 0
        self._tasks = ""
        self._executor = WorkersExecutor()
        self._thread: threading.Thread | None = None
        self._timer: threading.Timer | None = None
        self._overdue = False
        self.deselected = 0
        """Other tests than tasks that the workers have left out; known when the job begins."""
        self._finished = False
        self._failure: BaseException | None = None
        self._stray: list[str] = []

    # xdist's hooks, in the order in which they are called

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: Sequence[object]) -> None:
        self._expected = len(specs)
        adopt_restarts(self._config, self._stray.append)
        self._write_nonce()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Called for every worker that is started, replacements included."""
        check_node(self._config, node)
        channel = node.gateway.newchannel()
        member = self._members[node] = _Member(node, channel)
        node.workerinput["skillopt_channel"] = channel
        node.workerinput["skillopt_nonce"] = self._nonce_facts()
        wrap_shutdown(node, member.worker.shut_down)
        channel.setcallback(functools.partial(self._receive, member), endmarker=None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self) -> _Scheduling:
        return _Scheduling(self, self._expected)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        with sigterm_interrupts():
            try:
                value = yield
            except BaseException as error:
                self._end("the session was interrupted")
                if not self._ran_out_of_workers(error):
                    raise
                value = True
            else:
                self._end("no worker is left")
        if self._thread is None:
            raise pytest.exit.Exception("no worker has come up", returncode=1)
        if self._failure is not None:
            raise self._failure
        return value

    # what workers say, in execnet's receiver threads

    def _receive(self, member: _Member, message: tuple[Any, ...] | None) -> None:
        kind, *rest = message or ("end",)
        if kind == "result":
            self._executor.finished(member.worker, *rest)
        elif kind == "leaving":
            self._executor.leaving(member.worker)
        elif kind == "ask":
            member.worker.send(*answer(self._services, *rest))
        elif kind == "stray":
            self._stray.append(f"{member.worker.name}: {rest[0]}")
        elif kind == "hello":
            member.facts = json.loads(rest[0])
            wake_controller(member.node)
        elif kind == "end":
            self._executor.lost(member.worker)
            if self._on_lost is not None:
                self._on_lost(f"{member.worker.name}:")

    # the course of the run, in the main thread

    def advance(self) -> None:
        """Look at the workers that have said hello since the last time."""
        members = list(self._members.values())
        new = [m for m in members if m.facts and not m.admitted and not m.worker.lost]
        if self._thread is None:
            if len(new) >= self._expected:
                self._start(new)
            elif self._overdue:
                silent = [m.worker.name for m in members if not m.facts and not m.worker.lost]
                raise pytest.UsageError(
                    f"{', '.join(silent)}: no answer within {_HELLO_PATIENCE:g} seconds after the "
                    "collection; is the same pytest-skillopt installed and enabled there?"
                )
            return
        for member in new:
            self._admit(member)

    def await_hello(self) -> None:
        """All workers have collected: those that do not speak up now never will."""
        if self._timer is None and self._thread is None:
            self._timer = threading.Timer(_HELLO_PATIENCE, self._lose_patience)
            self._timer.daemon = True
            self._timer.start()

    def left(self, node: Any) -> None:
        """A node has ended, in order or not."""
        member = self._members.pop(node, None)
        if member is None or member.facts or self._finished:
            return
        self._failed_starts += 1
        if self._failed_starts > _START_FAILURES * self._expected:
            reason = f"{self._failed_starts} workers in a row died before they had collected"
            self._executor.stop(reason)
            raise pytest.exit.Exception(reason, returncode=1)

    @property
    def finished(self) -> bool:
        return self._finished

    def _start(self, members: list[_Member]) -> None:
        facts = {member.worker.name: member.facts or {} for member in members}
        self._tasks = check_agreement(facts)
        self.deselected = max(said.get("deselected", 0) for said in facts.values())
        tasks = [SkillTask.from_json(data) for data in json.loads(self._tasks)]
        self._thread = threading.Thread(target=self._work, args=(tasks,), name="skillopt-job")
        for member in members:
            self._admit(member)
        self._thread.daemon = True
        self._thread.start()

    def _admit(self, member: _Member) -> None:
        facts = member.facts or {}
        member.admitted = True
        self._failed_starts = 0
        try:
            check_agreement({"the others": {"tasks": self._tasks}, member.worker.name: facts})
        except (pytest.UsageError, KeyboardInterrupt) as error:
            self._executor.stop(f"the suite has changed during the run: {error}")
        else:
            self._executor.welcome(member.worker, facts["slots"])

    def _work(self, tasks: list[SkillTask]) -> None:
        """Body of the job's thread."""
        try:
            self._job(self._executor, tasks)
        except ExecutorClosed as closed:
            self._failure = pytest.exit.Exception(str(closed), returncode=1)
        except BaseException as error:
            self._failure = error
        finally:
            self._finished = True
            for member in list(self._members.values())[:1]:
                wake_controller(member.node)

    def _lose_patience(self) -> None:
        self._overdue = True
        for member in list(self._members.values())[:1]:
            wake_controller(member.node)

    def _ran_out_of_workers(self, error: BaseException) -> bool:
        """xdist raises this once the last worker is gone; the job has been told the same."""
        return isinstance(error, RuntimeError) and not self._members

    def _end(self, reason: str) -> None:
        self._executor.stop(reason)
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join(_JOIN_PATIENCE)
        if self._nonce is not None:
            self._nonce.unlink(missing_ok=True)
        self._show_stray()

    def _show_stray(self) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            for line in self._stray:
                terminal.write_line(no_command(line))

    def _write_nonce(self) -> None:
        if self._shared is not None:
            with contextlib.suppress(OSError):
                self._shared.mkdir(parents=True, exist_ok=True)
                nonce = self._shared / f".nonce-{uuid.uuid4().hex}"
                nonce.write_text(nonce.name, encoding="utf-8")
                self._nonce = nonce

    def _nonce_facts(self) -> tuple[str, str]:
        return (str(self._nonce.absolute()), self._nonce.name) if self._nonce else ("", "")


class _Scheduling:
    """xdist's ``Scheduling`` protocol: it schedules no tests, it waits for the job."""

    def __init__(self, run: XdistRun, expected: int) -> None:
        self._run = run
        self._expected = expected
        self._nodes: list[Any] = []
        self._collected: set[Any] = set()

    @property
    def nodes(self) -> list[Any]:
        return list(self._nodes)

    @property
    def collection_is_completed(self) -> bool:
        return len(self._collected) >= self._expected

    @property
    def tests_finished(self) -> bool:
        return self._run.finished

    @property
    def has_pending(self) -> bool:
        return False

    def add_node(self, node: Any) -> None:
        self._nodes.append(node)

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        self._collected.add(node)

    def schedule(self) -> None:
        self._run.await_hello()

    def mark_test_complete(self, node: Any, item_index: object, duration: float = 0) -> None:
        """Called in the main thread for every ``wake_controller``."""
        self._run.advance()

    def mark_test_pending(self, item: str) -> None:
        raise NotImplementedError("rollouts are not scheduled by xdist")

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> None:
        raise NotImplementedError("rollouts are not scheduled by xdist")

    def remove_node(self, node: Any) -> None:
        """A node has ended. Returns None: what it was running is no test that has crashed."""
        if node in self._nodes:
            self._nodes.remove(node)
        self._collected.discard(node)
        self._run.left(node)


def answer(
    services: Mapping[str, Callable[..., Any]], number: int, method: str, arguments: str
) -> tuple[str, int, str, str]:
    """Call a service for a worker; the message to send back."""
    try:
        value = json.dumps(services[method](*json.loads(arguments)))
    except Exception as error:
        return "answer", number, "", json.dumps(_described(error))
    return "answer", number, value, ""


def _described(error: Exception) -> dict[str, Any]:
    kind = type(error).__name__
    return {"type": kind, "message": str(error), "fatal": getattr(error, "fatal", False)}
