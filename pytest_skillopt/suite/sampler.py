"""Takes every sample once: from the ledger of the run, else through the executor.

Above the executor there are only measurements: infrastructure errors are tried again here, with
back-off, and what stays an error comes back as one. Spending caps, fatal faults and a run of errors
end the run by raising ``StopRun``; everything that was paid for is in the ledger by then.
"""

from __future__ import annotations

import hashlib
import heapq
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pytest_skillopt.suite.executor import ExecutorClosed
from pytest_skillopt.suite.rollouts import RolloutRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_skillopt.suite.executor import Executor
    from pytest_skillopt.suite.rollouts import InfraError, Rollout
    from pytest_skillopt.suite.tasks import SkillTask

_BACK_OFF = 0.5
"""Seconds before the second try of a rollout; doubles with every further one."""


class StopRun(Exception):
    """The run ends here, in a state that can be resumed."""

    def __init__(self, reason: str, *, kind: str = "cap") -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind
        """``cap``, ``fatal``, ``breaker``, ``interrupted`` or ``journal``."""


class Ledger(Protocol):
    """Where finished rollouts are kept."""

    def get(self, key: str) -> Rollout | None:
        """The measured or skipped rollout with this request key, or None."""

    def put(self, rollout: Rollout) -> None:
        """Keep a rollout, for good, before anything depends on it."""

    def __contains__(self, key: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be tried. Zero turns a cap off."""

    max_attempts: int = 3
    max_rollouts: int = 0
    max_time: float = 0.0
    breaker: int = 20
    prefetch: bool = True


class Sampler:
    """Requests in, rollouts out in the same order."""

    def __init__(
        self,
        executor: Executor,
        tasks: Iterable[SkillTask],
        ledger: Ledger,
        *,
        model: str,
        limits: Limits | None = None,
        on_rollout: Callable[[Rollout], None] | None = None,
        on_version: Callable[[str, bytes], None] | None = None,
    ) -> None:
        """Args:
        model: fingerprint of the target model.
        on_rollout: told of every rollout that was run, as it arrives.
        on_version: told of every new version of a skill and its bytes.
        """
        self._executor = executor
        self._tasks = {task.id: task for task in tasks}
        self._ledger = ledger
        self._model = model
        self._limits = limits or Limits()
        self._on_rollout = on_rollout
        self._on_version = on_version
        self._versions: set[tuple[str, str]] = set()
        self._in_flight: dict[str, RolloutRequest] = {}
        self._attempts: dict[str, int] = {}
        self._errors: dict[str, Rollout] = {}
        self._delayed: list[tuple[float, str]] = []
        self._likely: deque[RolloutRequest] = deque()
        self._prefetched: set[str] = set()
        self._errors_in_a_row = 0
        self._deadline = time.monotonic() + self._limits.max_time if self._limits.max_time else None
        self.taken = 0
        """Rollouts started by this process, those of the ledger not counted."""
        self.errors = 0
        """Requests that stayed an infrastructure error."""

    @property
    def rollouts_left(self) -> int | None:
        """What ``max_rollouts`` still allows; None without that cap."""
        cap = self._limits.max_rollouts
        return max(0, cap - self.taken) if cap else None

    def add_version(self, skill: str, content: bytes) -> str:
        """Make a version of a skill known to the workers and return its SHA-256."""
        version = hashlib.sha256(content).hexdigest()
        if (skill, version) not in self._versions:
            self._versions.add((skill, version))
            self._executor.add_version(skill, version, content)
            if self._on_version:
                self._on_version(version, content)
        return version

    def request(self, task: str, version: str, stream: str, index: int) -> RolloutRequest:
        """Sample ``index`` of ``stream`` of a task (by node id) under a version."""
        known = self._tasks[task]
        return RolloutRequest(task, known.source, known.skill, version, self._model, stream, index)

    def known(self, request: RolloutRequest) -> bool:
        """Whether the sample is there already, so that taking it costs nothing."""
        return request.key in self._ledger

    def take(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        """Return one rollout a request, in order; blocks until all are there.

        A request that stayed an infrastructure error over all attempts comes back as ``error``.

        Raises:
            StopRun: a cap, a fatal fault, too many errors in a row, or an interrupt.
        """
        missing = [r for r in dict.fromkeys(requests) if not self._resolved(r.key)]
        self._start([r for r in missing if r.key not in self._in_flight], urgent=True)
        self._hurry([r for r in missing if r.key in self._in_flight])
        waiting = {r.key for r in missing}
        while waiting:
            self._employ_idle()
            self._receive()
            waiting = {key for key in waiting if not self._resolved(key)}
        return [self._result(r.key) for r in requests]

    def prefetch(self, requests: Iterable[RolloutRequest]) -> None:
        """Name samples that are likely to be asked for soon, the most useful first.

        While others are waited for, idle workers take them. They are samples like all others: what
        is asked for later is there already, and nothing depends on whether it is.
        """
        self._likely = deque(dict.fromkeys(requests)) if self._limits.prefetch else deque()

    def cancel_prefetch(self) -> None:
        """Forget what was named and drop what is queued but not yet running."""
        self._likely.clear()
        for key in self._executor.cancel(list(self._prefetched)):
            self._prefetched.discard(key)
            del self._in_flight[key]
            self.taken -= 1

    def _employ_idle(self) -> None:
        """Give idle workers the likely samples, as far as the cap on rollouts goes."""
        if self._executor.capacity == 1:
            return
        while self._likely and len(self._in_flight) < self._executor.capacity:
            request = self._likely.popleft()
            if request.key in self._in_flight or self._resolved(request.key):
                continue
            if self.rollouts_left == 0:
                return
            self._prefetched.add(request.key)
            self._start([request], urgent=False)

    def _resolved(self, key: str) -> bool:
        return key in self._errors or key in self._ledger

    def _result(self, key: str) -> Rollout:
        rollout = self._errors.get(key) or self._ledger.get(key)
        assert rollout is not None, key
        return rollout

    def _start(self, requests: Sequence[RolloutRequest], *, urgent: bool) -> None:
        if not requests:
            return
        left = self.rollouts_left
        if left is not None and len(requests) > left:
            raise StopRun(
                f"--skillopt-max-rollouts={self._limits.max_rollouts} is reached: "
                f"{self.taken} were run and the next {len(requests)} do not fit"
            )
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise StopRun(f"--skillopt-max-time={self._limits.max_time:g} seconds are over")
        self.taken += len(requests)
        self._submit(requests, urgent=urgent)

    def _submit(self, requests: Sequence[RolloutRequest], *, urgent: bool) -> None:
        for request in requests:
            self._in_flight[request.key] = request
        self._executor.submit(requests, urgent=urgent)

    def _hurry(self, requests: Sequence[RolloutRequest]) -> None:
        """What was only prefetched is waited for now."""
        self._prefetched.difference_update(r.key for r in requests)
        delayed = {key for _, key in self._delayed}
        queued = [r for r in requests if r.key not in delayed]
        if queued:
            self._executor.submit(queued, urgent=True)

    def _receive(self) -> None:
        """Wait for one rollout, or for the time of a delayed retry."""
        self._resubmit_due()
        timeout = None
        if self._delayed:
            timeout = max(0.0, self._delayed[0][0] - time.monotonic())
            if len(self._delayed) == len(self._in_flight):
                time.sleep(timeout)
                return
        try:
            rollout = self._executor.next(timeout)
        except ExecutorClosed as closed:
            raise StopRun(str(closed), kind="interrupted") from closed
        except KeyboardInterrupt as interrupt:
            raise StopRun("the session was interrupted", kind="interrupted") from interrupt
        if rollout is not None:
            self._finish(rollout)

    def _resubmit_due(self) -> None:
        while self._delayed and self._delayed[0][0] <= time.monotonic():
            _, key = heapq.heappop(self._delayed)
            self._submit([self._in_flight[key]], urgent=True)

    def _finish(self, rollout: Rollout) -> None:
        key = rollout.request.key
        if key not in self._in_flight:
            return
        self._prefetched.discard(key)
        attempt = self._attempts.get(key, 0) + 1
        rollout = replace(rollout, attempt=attempt)
        if rollout.error is None:
            del self._in_flight[key]
            self._attempts.pop(key, None)
            self._errors_in_a_row = 0
            self._ledger.put(rollout)
        else:
            self._attempts[key] = attempt
            self._ledger.put(rollout)
            self._stop_where_hopeless(rollout.request, rollout.error)
            self._retry_or_give_up(key, rollout)
        if self._on_rollout:
            self._on_rollout(rollout)

    def _stop_where_hopeless(self, request: RolloutRequest, error: InfraError) -> None:
        if error.kind == "cap":
            raise StopRun(error.message)
        if error.fatal or error.kind == "cache":
            raise StopRun(f"{request.task}: {error.message}", kind="fatal")
        self._errors_in_a_row += 1
        if self._errors_in_a_row >= max(self._limits.breaker, 2 * self._executor.capacity):
            raise StopRun(
                f"{self._errors_in_a_row} infrastructure errors in a row, the last in "
                f"{request.task}: {error.message}",
                kind="breaker",
            )

    def _retry_or_give_up(self, key: str, rollout: Rollout) -> None:
        if rollout.attempt >= self._limits.max_attempts:
            del self._in_flight[key]
            self._errors[key] = rollout
            self.errors += 1
            return
        due = time.monotonic() + _BACK_OFF * 2 ** (rollout.attempt - 1)
        heapq.heappush(self._delayed, (due, key))
