"""The protocol of executors, which carry out rollouts, and the executor that uses workers.

Messages of workers arrive in execnet's receiver threads, one per worker. These update the state
under one lock and send the next request at once; the consumer waits in ``next`` in another thread.
If it falls behind by as many rollouts as run at once, nothing is sent until it fetches one: it may
find that a cap is used up.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
import time
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from pytest_skillopt.rollouts.folders import SkillVersions
from pytest_skillopt.rollouts.rollout import Rollout
from pytest_skillopt.untrusted import hide_values, secret_variables, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pytest

    from pytest_skillopt.rollouts.rollout import RolloutRequest


class Executor(Protocol):
    """Take requests, return rollouts as they finish.

    An executor keeps no record and retries nothing: every submitted request comes back exactly
    once, as a measurement or as an ``error`` rollout, unless it was cancelled.
    """

    @property
    def capacity(self) -> int:
        """Number of rollouts that can run at once, at least 1."""

    @property
    def ended(self) -> str:
        """Reason why no more rollouts will run; empty while they do."""

    def add_version(self, skill: str, version: str, content: bytes) -> None:
        """Add a version of a skill before the first request that names it."""

    def submit(self, requests: Iterable[RolloutRequest]) -> None:
        """Queue requests, none of which may be queued, running or waiting to be fetched."""

    def next(self) -> Rollout:
        """Block until a rollout has finished and return it.

        Raises:
            ExecutorClosed: the session was interrupted, or no worker is left.
            RuntimeError: nothing is queued or running, so nothing could ever arrive.
        """

    def cancel(self, keys: Iterable[str]) -> set[str]:
        """Drop queued requests and return their keys; running ones still come back."""


class ExecutorClosed(Exception):
    """No more rollouts will arrive: the session was interrupted or has lost its workers."""


def write_stray(config: pytest.Config, lines: Iterable[str]) -> None:
    """Write the errors that occurred between rollouts to the terminal."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    for line in lines:
        if terminal is not None:
            terminal.write_line(shown(line))


_WINDOW = 64
"""Number of queued requests among which the cheapest for a worker is chosen."""


def cheapest(
    pending: OrderedDict[str, RolloutRequest], last: RolloutRequest | None
) -> RolloutRequest:
    """Remove and return the queued request that needs the least set-up after ``last``.

    A change of the skill's version costs more than a change of the module.
    """

    def cost(request: RolloutRequest) -> int:
        if last is None:
            return 0
        other_version = (request.skill, request.version) != (last.skill, last.version)
        other_module = request.task.partition("::")[0] != last.task.partition("::")[0]
        return 2 * other_version + other_module

    window = list(islice(pending.values(), _WINDOW))
    best = next((request for request in window if not cost(request)), None)
    return pending.pop((best or min(window, key=cost)).key)


class Worker:
    def __init__(self, name: str, channel: Any) -> None:
        self.name = name
        self.slots = 0
        """Number of rollouts that it can run at once; 0 before ``welcome`` and after its end."""
        self.lost = False
        self.facts: dict[str, Any] = {}
        """Content of its hello; empty before that."""
        self.running: dict[str, RolloutRequest] = {}
        self.started: dict[str, float] = {}
        """Times, of a monotonic clock, at which it was sent these requests."""
        self.end = "died while it ran this task"
        self.last: RolloutRequest | None = None
        self._channel = channel
        self._known: set[tuple[str, str]] = set()
        """Skills and versions that were sent to it; version "" for the files of a skill."""
        # execnet's socket gateways tear the stream when two threads send at once.
        self._sending = threading.Lock()

    @property
    def free(self) -> int:
        return self.slots - len(self.running)

    def has_owed_since(self, moment: float) -> bool:
        """Return whether it owes a rollout that it was sent before a moment."""
        return any(self.started[key] < moment for key in self.running)

    def send(self, *message: Any) -> None:
        """Send a message; if the worker is dead, ``lost`` settles its requests."""
        with self._sending, contextlib.suppress(OSError):
            self._channel.send(message)

    def shut_down(self, shutdown: Callable[[], None]) -> None:
        """End the rollout loop in the worker, then xdist's."""
        self.send("stop")
        with self._sending:
            shutdown()

    def run(self, request: RolloutRequest, versions: SkillVersions) -> None:
        """Send a request, preceded by the files and version of its skill if not sent before."""
        skill = request.skill
        version = request.version
        with self._sending, contextlib.suppress(OSError):
            if (skill, "") not in self._known:
                files = {os.fsencode(n): data for n, data in versions.files(skill).items()}
                self._channel.send(("skill", skill, files))
            if (skill, version) not in self._known:
                content = versions.content(skill, version)
                self._channel.send(("version", skill, version, content))
            self._known |= {(skill, ""), (skill, version)}
            self._channel.send(("run", json.dumps(request.to_json())))


class WorkersExecutor:
    """Spread requests over the workers. Thread-safe."""

    def __init__(self) -> None:
        self._versions = SkillVersions()
        self._changed = threading.Condition()
        self._pending: OrderedDict[str, RolloutRequest] = OrderedDict()
        self._workers: list[Worker] = []
        self._done: OrderedDict[str, str | Rollout] = OrderedDict()
        """Finished rollouts, by key, that were not fetched yet."""
        self._closed = ""
        self.services: Mapping[str, Callable[..., Any]] = {}
        """Functions that workers may call, by name, each in a thread.

        They are given the worker's name and JSON values.
        """
        self.on_lost: Callable[[str], None] = lambda worker: None
        """Function that abandons the calls of a worker that has ended, by its name."""

    @property
    def capacity(self) -> int:
        with self._changed:
            return max(1, sum(worker.slots for worker in self._workers))

    @property
    def ended(self) -> str:
        return self._closed

    def add_skill(self, skill: str, files: Mapping[str, bytes]) -> None:
        """Add the files beside a skill's document, by relative path with ``/``."""
        self._versions.add_skill(skill, files)

    def add_version(self, skill: str, version: str, content: bytes) -> None:
        self._versions.add_version(skill, version, content)

    def submit(self, requests: Iterable[RolloutRequest]) -> None:
        """Queue requests; raise KeyError if one names a version that was never added."""
        added = {request.key: request for request in requests}
        for request in added.values():
            self._versions.content(request.skill, request.version)
        with self._changed:
            self._pending.update(added)
        self._dispatch()

    def next(self) -> Rollout:
        with self._changed:
            self._changed.wait_for(lambda: self._done or self._closed or self._is_idle())
            if not self._done:
                if self._closed:
                    raise ExecutorClosed(self._closed)
                raise RuntimeError("no rollout is queued or running")
            key, done = self._done.popitem(last=False)
        self._dispatch()
        if isinstance(done, Rollout):
            return done
        rollout = Rollout.from_json(json.loads(done))
        if rollout.request.key != key:
            raise ValueError(f"a worker answered {key} with a rollout of {rollout.request}")
        # A worker cannot redact the keys that only this process knows.
        return rollout.rewritten(functools.partial(hide_values, environ=secret_variables()))

    def cancel(self, keys: Iterable[str]) -> set[str]:
        with self._changed:
            return {key for key in keys if self._pending.pop(key, None)}

    def stop(self, reason: str) -> None:
        with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()

    def welcome(self, worker: Worker, slots: int) -> None:
        """Admit a worker that has collected the same tasks; it runs ``slots`` rollouts at once."""
        with self._changed:
            if not worker.lost:
                worker.slots = slots
                self._workers.append(worker)
        self._dispatch()

    def finished(self, worker: Worker, key: str, done: str) -> None:
        """Accept the rollout ``done`` (JSON text) of a worker.

        Rollouts that end after ``stop`` are ignored: an interrupt also reaches the processes of a
        test, and their failure is not a wrong answer.
        """
        with self._changed:
            if worker.running.pop(key, None) is not None and not self._closed:
                self._done[key] = done
                self._changed.notify_all()
        self._dispatch()

    def leaving(self, worker: Worker) -> None:
        """Note that a worker is about to end itself; its earlier messages still count."""
        with self._changed:
            worker.slots = 0

    def lost(self, worker: Worker) -> None:
        with self._changed:
            worker.lost = True
            worker.slots = 0
            if worker in self._workers:
                self._workers.remove(worker)
            for request in () if self._closed else worker.running.values():
                said = f"worker {worker.name} {worker.end}"
                self._done[request.key] = Rollout.of_error(
                    request, "worker", said, worker=worker.name
                )
            worker.running = {}
            self._changed.notify_all()

    def overdue(self, seconds: float) -> list[Worker]:
        """List the workers that have owed a rollout for longer than a number of seconds."""
        since = time.monotonic() - seconds
        with self._changed:
            return [worker for worker in self._workers if worker.has_owed_since(since)]

    def _dispatch(self) -> None:
        with self._changed:
            assigned = [] if self._closed else self._assign()
        # Sent outside of the lock: a worker behind a slow network must not block the others.
        for worker, request in assigned:
            worker.run(request, self._versions)

    def _assign(self) -> list[tuple[Worker, RolloutRequest]]:
        assigned = []
        most = sum(worker.slots for worker in self._workers)
        while self._pending and len(self._done) < most:
            worker = max(self._workers, key=lambda w: w.free)
            if worker.free < 1:
                break
            request = cheapest(self._pending, worker.last)
            worker.running[request.key] = worker.last = request
            worker.started[request.key] = time.monotonic()
            assigned.append((worker, request))
        return assigned

    def _is_idle(self) -> bool:
        return not self._pending and not any(worker.running for worker in self._workers)


class FunctionExecutor(WorkersExecutor):
    """An executor that calls a function, for example a simulation.

    Args:
        run: carries out a request with the text of its skill. ``request.task`` names the task,
            ``request.seed`` is this sample's seed. An exception ends the training.
    """

    def __init__(self, run: Callable[[RolloutRequest, str], Rollout]) -> None:
        super().__init__()
        self._run = run
        self.ran = 0
        """Number of rollouts carried out."""

    def next(self) -> Rollout:
        if not self._pending:
            raise RuntimeError("nothing is queued, so nothing could ever arrive")
        _, request = self._pending.popitem(last=False)
        self.ran += 1
        return self._run(request, self._versions.content(request.skill, request.version).decode())
