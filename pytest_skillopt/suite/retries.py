"""What a sampler has begun and not got back, and the tasks that it no longer runs."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from pytest_skillopt.suite.rollouts import InfraError, Rollout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_skillopt.suite.executor import Executor
    from pytest_skillopt.suite.rollouts import RolloutRequest


_COSTLY = ("worker", "timeout")
"""Errors that a task brings about itself and that cost a process or minutes each."""
MOST = 5
"""Of them in a row, under one version, before a task is not run again under it."""
_VERSIONS = 2
"""Versions under which a task that was never measured has to be given up, to be so under all."""


class Quarantine:
    """The costly errors of one session. See docs/decisions/gate-errors.md."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        """A line for each task that was given up under a version."""
        self._in_a_row: Counter[tuple[str, str]] = Counter()
        self._given_up: dict[str, dict[str, InfraError]] = {}
        """By task, the last error under each version under which it is not run again."""
        self._tired: set[str] = set()
        """Tasks that have used up their attempts since they were last measured."""
        self._measured: set[str] = set()

    def measured(self, request: RolloutRequest) -> None:
        """A sample was no error."""
        self._measured.add(request.task)
        self._tired.discard(request.task)
        self._in_a_row.pop((request.task, request.version), None)

    def failed(self, request: RolloutRequest, error: InfraError) -> None:
        """An attempt ended in an error."""
        if error.kind not in _COSTLY:
            return
        key = request.task, request.version
        self._in_a_row[key] += 1
        if self._in_a_row[key] == MOST:
            self._given_up.setdefault(request.task, {})[request.version] = error
            self.notes.append(
                f"{request.task} is not run again under version {request.version[:10]} of the "
                f"skill: {MOST} times in a row it ended so: {error.message}"
            )

    def attempts(self, request: RolloutRequest, error: InfraError, most: int) -> int:
        """How often a sample may be tried that ended in this error, of ``most`` in general."""
        if self.holds(request):
            return 0
        return 1 if error.kind in _COSTLY and request.task in self._tired else most

    def gave_up(self, request: RolloutRequest, error: InfraError) -> None:
        """A sample has used up its attempts: further ones of the task have one each."""
        if error.kind in _COSTLY:
            self._tired.add(request.task)

    def holds(self, request: RolloutRequest) -> bool:
        """Whether the request is not to be run."""
        versions = self._given_up.get(request.task, {})
        never = len(versions) >= _VERSIONS and request.task not in self._measured
        return never or request.version in versions

    def stand_in(self, request: RolloutRequest) -> Rollout:
        """The error in the place of one more that is held."""
        last = next(reversed(self._given_up[request.task].values()))
        error = InfraError(last.kind, f"not run again after {MOST} errors: {last.message}")
        return Rollout(request, "error", error=error)


class UnderWay:
    """Stands between a sampler and its executor."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._requests: dict[str, RolloutRequest] = {}
        self._delayed: list[tuple[float, str]] = []
        self._backlog: dict[str, RolloutRequest] = {}
        """Kept from the executor until there is a free worker."""
        self.rationed = False
        """The executor is given no more than can run at once."""

    def __contains__(self, key: str) -> bool:
        return key in self._requests

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[RolloutRequest]:
        return iter(self._requests.values())

    def submit(self, requests: Sequence[RolloutRequest], *, urgent: bool) -> None:
        for request in requests:
            self._requests[request.key] = request
        if self.rationed:
            self._backlog |= {request.key: request for request in requests}
        else:
            self._executor.submit(requests, urgent=urgent)

    def hurry(self, requests: Iterable[RolloutRequest]) -> None:
        """What was only prefetched is waited for now."""
        elsewhere = {key for _, key in self._delayed} | self._backlog.keys()
        queued = [r for r in requests if r.key not in elsewhere]
        if queued:
            self._executor.submit(queued, urgent=True)

    def delay(self, request: RolloutRequest, seconds: float) -> None:
        """Try one that came back once more, after a while."""
        heapq.heappush(self._delayed, (time.monotonic() + seconds, request.key))

    def due(self) -> Iterator[RolloutRequest]:
        """Those whose time to be tried again has come; the caller submits them or ends them."""
        while self._delayed and self._delayed[0][0] <= time.monotonic():
            _, key = heapq.heappop(self._delayed)
            yield self._requests[key]

    def end(self, key: str) -> None:
        """It has got its rollout."""
        del self._requests[key]

    def ration(self) -> None:
        """Take back what has not begun: from now on the executor has no more than it can run."""
        self.rationed = True
        queued = self._executor.cancel(self._requests)
        self._backlog = {key: r for key, r in self._requests.items() if key in queued}

    def next(self) -> Rollout | None:
        """Wait for a rollout; None where a retry is due first.

        Raises:
            ExecutorClosed, RuntimeError: as ``Executor.next``.
        """
        self._feed()
        timeout = None
        if self._delayed:
            timeout = max(0.0, self._delayed[0][0] - time.monotonic())
            if len(self._delayed) == len(self._requests):
                time.sleep(timeout)
                return None
        return self._executor.next(timeout)

    def drop(self, keys: Iterable[str] | None = None) -> list[RolloutRequest]:
        """Forget those (of all, or of some) that do not run at this moment, and return them."""
        wanted = set(self._requests if keys is None else keys)
        dropped = self._executor.cancel(wanted)
        dropped |= {
            key for key in (*self._backlog, *(k for _, k in self._delayed)) if key in wanted
        }
        self._delayed = [entry for entry in self._delayed if entry[1] not in dropped]
        heapq.heapify(self._delayed)
        for key in dropped:
            self._backlog.pop(key, None)
        return [self._requests.pop(key) for key in sorted(dropped)]

    def _feed(self) -> None:
        """Hand over as much of the backlog as can run at once."""
        running = len(self._requests) - len(self._backlog) - len(self._delayed)
        free = max(0, self._executor.capacity - running)
        for key in list(islice(self._backlog, free)):
            self._executor.submit([self._backlog.pop(key)])
