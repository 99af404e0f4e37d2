"""Takes every sample once: from the ledger of the run, else through the executor.

Above the executor there are only measurements: infrastructure errors are tried again here, with
back-off, and what stays an error comes back as one. Spending caps, fatal faults and a run of errors
end the run by raising ``StopRun``; everything that was paid for is in the ledger by then.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pytest_skillopt.model.types import CapReached, Usage
from pytest_skillopt.suite.executor import ExecutorClosed
from pytest_skillopt.suite.retries import Quarantine, UnderWay
from pytest_skillopt.suite.rollouts import RolloutRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.executor import Executor
    from pytest_skillopt.suite.rollouts import InfraError, Rollout
    from pytest_skillopt.suite.tasks import SkillTask


OWN_AGENT = "own agent"
"""Role, in the accounts, of what tests report with ``rollout.usage``."""


class Ledger(Protocol):
    """Where finished rollouts are kept."""

    def get(self, key: str) -> Rollout | None:
        """The measured or skipped rollout with this request key, or None."""

    def put(self, rollout: Rollout) -> None:
        """Keep a rollout, for good, before anything depends on it."""

    def __contains__(self, key: str) -> bool: ...


class MemoryLedger:
    """Keeps finished rollouts for as long as the process lives."""

    def __init__(self) -> None:
        self._rollouts: dict[str, Rollout] = {}

    def get(self, key: str) -> Rollout | None:
        return self._rollouts.get(key)

    def put(self, rollout: Rollout) -> None:
        if rollout.error is None:
            self._rollouts[rollout.request.key] = rollout

    def __contains__(self, key: str) -> bool:
        return key in self._rollouts


class Meter(Protocol):
    """The accounts of the run, for calls that tests make by themselves."""

    @property
    def bounded(self) -> bool:
        """Whether there is a spending cap at all."""

    def report(self, usage: Usage, account: tuple[str, str, str]) -> None:
        """Enter what was paid, under a role, a stage and a task."""

    def check(self) -> None:
        """Raises:
        CapReached: a spending cap leaves nothing.
        """


_BACK_OFF = 0.5
"""Seconds before the second try of a rollout; doubles with every further one."""


class StopRun(Exception):
    """The run ends here, in a state that can be resumed."""

    def __init__(self, reason: str, *, kind: str = "cap") -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind
        """``cap``, ``fatal``, ``breaker``, ``interrupted``, or that of who raises it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be tried. Zero turns a cap off."""

    max_attempts: int = 3
    max_rollouts: int = 0
    max_time: float = 0.0
    breaker: int = 20
    prefetch: bool = True

    @classmethod
    def from_settings(cls, settings: Settings) -> Limits:
        caps = ("max_rollouts", "max_calls", "max_tokens", "max_cost", "max_time")
        return cls(
            max_attempts=settings.max_attempts,
            max_rollouts=settings.max_rollouts,
            max_time=settings.max_time,
            breaker=settings.breaker,
            # Under a cap nothing is spent on a guess.
            prefetch=settings.prefetch and not any(getattr(settings, cap) for cap in caps),
        )


class Sampler:
    """Requests in, rollouts out in the same order."""

    def __init__(
        self,
        executor: Executor,
        tasks: Iterable[SkillTask],
        ledger: Ledger | None = None,
        *,
        model: str = "",
        limits: Limits | None = None,
        meter: Meter | None = None,
        on_rollout: Callable[[Rollout], None] | None = None,
        on_version: Callable[[str, bytes], None] | None = None,
    ) -> None:
        """Args:
        ledger: where finished rollouts are kept; None keeps them in memory.
        model: fingerprint of the target model.
        meter: told what tests report of agents of their own, and asked for caps; None: nobody.
        on_rollout: told of every rollout that was run, as it arrives.
        on_version: told of every new version of a skill and its bytes.
        """
        self._executor = executor
        self._tasks = {task.id: task for task in tasks}
        self._ledger: Ledger = MemoryLedger() if ledger is None else ledger
        self._model = model
        self._limits = limits or Limits()
        self._meter = meter
        self._on_rollout = on_rollout
        self._on_version = on_version
        self._versions: set[tuple[str, str]] = set()
        self._under_way = UnderWay(executor)
        self._attempts: dict[str, int] = {}
        self._errors: dict[str, Rollout] = {}
        self._quarantine = Quarantine()
        self._settled: set[str] = set()
        """Keys that have got their rollout since ``take`` looked."""
        self._likely: list[RolloutRequest] = []
        self._asked: set[str] = set()
        self._capacity = 1
        self._errors_in_a_row = 0
        self._deadline = time.monotonic() + self._limits.max_time if self._limits.max_time else None
        self.taken = 0
        """Rollouts started by this process, those of the ledger not counted."""
        self.usage: dict[str, Usage] = {}
        """By task, what its rollouts took, those included that the ledger had."""
        self._counted: set[str] = set()
        self._prompts: dict[str, str] = {}
        """By task, the first words to its model, as a digest."""
        self.errors = 0
        """Requests that stayed an infrastructure error."""

    @property
    def notes(self) -> list[str]:
        """What a reader must know of the rollouts."""
        return [*self._quarantine.notes, *self._notes_on_prompts()]

    @property
    def rollouts_left(self) -> int | None:
        """What ``max_rollouts`` still allows; None without that cap."""
        cap = self._limits.max_rollouts
        return max(0, cap - self.taken) if cap else None

    @property
    def at_once(self) -> int:
        """How many rollouts run at the same time, at least 1."""
        return self._executor.capacity

    @property
    def ended(self) -> str:
        """Why no rollout will be run any more; empty while they are."""
        return self._executor.ended

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
        wanted = list(dict.fromkeys(requests))
        missing = [r for r in self._admitted(wanted) if not self._resolved(r.key)]
        begun = [r for r in missing if r.key in self._under_way]
        self._start([r for r in missing if r.key not in self._under_way], urgent=True)
        self._under_way.hurry(begun)
        self._fill_round(wanted)
        waiting = {r.key for r in missing}
        while waiting:
            self._stop_where_spent(waiting)
            self._receive()
            waiting -= self._settled
            self._settled.clear()
        return [self._result(r.key) for r in requests]

    def prefetch(self, requests: Iterable[RolloutRequest]) -> None:
        """Name samples that are likely to be asked for soon, the most useful first.

        The next ``take`` adds as many of them as fill up its last round on the workers, which would
        otherwise wait for its slowest rollouts. How many follows from what was asked and from the
        number of workers, never from timing: a repeated run takes the same samples, and finds all
        of them in the cache. See docs/decisions/prefetch.md.
        """
        self._likely = list(dict.fromkeys(requests)) if self._limits.prefetch else []

    def settle(self) -> int:
        """Keep what is under way when nobody wants more: it is paid for, or will be.

        Waits for what runs; what has not begun is dropped.

        Returns:
            How many rollouts were lost because the session was interrupted.
        """
        self._drop()
        while self._under_way:
            try:
                rollout = self._executor.next()
            except (ExecutorClosed, KeyboardInterrupt, RuntimeError):
                break  # by the executor's protocol: what is missing now will never come
            if rollout is not None and rollout.request.key in self._under_way:
                self._under_way.end(rollout.request.key)
                self._keep(rollout)
        lost, self._under_way = len(self._under_way), UnderWay(self._executor)
        return lost

    def cancel_prefetch(self) -> None:
        """Forget what was named."""
        self._likely = []

    def _fill_round(self, wanted: Sequence[RolloutRequest]) -> None:
        self._capacity = max(self._capacity, self._executor.capacity)
        new = sum(request.key not in self._asked for request in wanted)
        self._asked.update(request.key for request in wanted)
        likely = [request for request in self._likely if request.key not in self._asked]
        likely = likely[: -new % self._capacity]
        self._likely = []
        self._asked.update(request.key for request in likely)
        left = self.rollouts_left
        unknown = [r for r in self._admitted(likely) if not self._resolved(r.key)]
        self._start(unknown[:left], urgent=False)

    def _stop_where_spent(self, waiting: set[str]) -> None:
        """Begin nothing more of what is waited for, once a cap is used up."""
        reason = self._spent()
        if reason and self._drop() & waiting:
            raise StopRun(reason)

    def _spent(self) -> str:
        """Which cap leaves nothing, if any. Model calls of ours are stopped one by one."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            return f"--skillopt-max-time={self._limits.max_time:g} seconds are over"
        if self._meter is not None and self._under_way.rationed:
            try:
                self._meter.check()
            except CapReached as cap:
                return str(cap)
        return ""

    def _drop(self) -> set[str]:
        """Forget what has not begun, and return its keys."""
        dropped = {request.key for request in self._under_way.drop()}
        self.taken -= sum(key not in self._attempts for key in dropped)
        return dropped

    def _resolved(self, key: str) -> bool:
        return key in self._errors or key in self._ledger

    def _result(self, key: str) -> Rollout:
        rollout = self._errors.get(key) or self._ledger.get(key)
        assert rollout is not None, key
        if key not in self._counted:
            self._count(rollout)
        return rollout

    def _count(self, rollout: Rollout) -> None:
        self._counted.add(rollout.request.key)
        self._note_prompt(rollout)
        used = self.usage.get(rollout.request.task, Usage())
        self.usage[rollout.request.task] = used + rollout.usage + rollout.judge_usage

    def _note_prompt(self, rollout: Rollout) -> None:
        first = next((turn.content for turn in rollout.transcript if turn.role == "user"), "")
        if first and rollout.request.task not in self._prompts:
            self._prompts[rollout.request.task] = hashlib.sha256(first.encode()).hexdigest()

    def _notes_on_prompts(self) -> list[str]:
        shared = [n for n in Counter(self._prompts.values()).values() if n > 1]
        if not shared:
            return []
        return [
            f"{sum(shared)} tasks begin with the prompt of another one: each draws replies of its "
            "own, so that they count as independent"
        ]

    def _start(self, requests: Sequence[RolloutRequest], *, urgent: bool) -> None:
        if not requests:
            return
        left = self.rollouts_left
        if left is not None and len(requests) > left:
            raise StopRun(
                f"--skillopt-max-rollouts={self._limits.max_rollouts} is reached: "
                f"{self.taken} were run and the next {len(requests)} do not fit"
            )
        if reason := self._spent():
            raise StopRun(reason)
        self.taken += len(requests)
        self._under_way.submit(requests, urgent=urgent)

    def _receive(self) -> None:
        """Wait for a rollout, or for the time of a delayed retry."""
        self._resubmit_due()
        try:
            rollout = self._under_way.next()
        except ExecutorClosed as closed:
            raise StopRun(str(closed), kind="interrupted") from closed
        except KeyboardInterrupt as interrupt:
            raise StopRun("the session was interrupted", kind="interrupted") from interrupt
        if rollout is not None:
            self._finish(rollout)

    def _resubmit_due(self) -> None:
        for request in self._under_way.due():
            self._under_way.submit([request], urgent=True)

    def _finish(self, rollout: Rollout) -> None:
        key = rollout.request.key
        if key not in self._under_way:
            return
        rollout = self._keep(rollout)
        if rollout.error is None:
            self._under_way.end(key)
            self._settled.add(key)
            self._attempts.pop(key, None)
            self._quarantine.measured(rollout.request)
            self._errors_in_a_row = 0
        else:
            self._attempts[key] = rollout.attempt
            self._quarantine.failed(rollout.request, rollout.error)
            self._stop_where_hopeless(rollout.request, rollout.error)
            self._retry_or_give_up(rollout, rollout.error)
        if self._on_rollout:
            self._on_rollout(rollout)

    def _keep(self, rollout: Rollout) -> Rollout:
        """Into the accounts and the ledger, before anything depends on it."""
        request = rollout.request
        rollout = replace(rollout, attempt=self._attempts.get(request.key, 0) + 1)
        self._count(rollout)
        if self._meter is not None and rollout.reported != Usage():
            # There is a cap, which nobody but the sampler can keep then.
            if self._meter.bounded and not self._under_way.rationed:
                self._under_way.ration()
            self._meter.report(rollout.reported, (OWN_AGENT, request.stage, request.task))
        self._ledger.put(rollout)
        return rollout

    def _stop_where_hopeless(self, request: RolloutRequest, error: InfraError) -> None:
        self._errors_in_a_row += 1
        if error.kind == "cap":
            stop = StopRun(error.message)
        elif error.fatal or error.kind == "cache":
            stop = StopRun(f"{request.task}: {error.message}", kind="fatal")
        elif self._errors_in_a_row >= max(self._limits.breaker, 2 * self._executor.capacity):
            stop = StopRun(
                f"{self._errors_in_a_row} infrastructure errors in a row, the last in "
                f"{request.task}: {error.message}",
                kind="breaker",
            )
        else:
            return
        self._under_way.end(request.key)
        raise stop

    def _retry_or_give_up(self, rollout: Rollout, error: InfraError) -> None:
        request = rollout.request
        if rollout.attempt < self._quarantine.attempts(request, error, self._limits.max_attempts):
            self._under_way.delay(request, _BACK_OFF * 2 ** (rollout.attempt - 1))
            return
        self._quarantine.gave_up(request, error)
        self._under_way.end(request.key)
        self._end_in_error(rollout)
        if self._quarantine.holds(request):
            self._call_off(request.task)

    def _end_in_error(self, rollout: Rollout) -> None:
        self._errors[rollout.request.key] = rollout
        self._settled.add(rollout.request.key)
        self.errors += 1

    # Quarantine.

    def _admitted(self, requests: Sequence[RolloutRequest]) -> list[RolloutRequest]:
        """Those that may be run; the others have ended in errors."""
        for request in requests:
            if self._quarantine.holds(request) and not self._is_under_way(request.key):
                self._end_in_error(self._quarantine.stand_in(request))
        return [r for r in requests if r.key not in self._errors]

    def _is_under_way(self, key: str) -> bool:
        return key in self._under_way or self._resolved(key)

    def _call_off(self, task: str) -> None:
        """End what has not begun of a task that was just given up."""
        ours = [r for r in self._under_way if r.task == task and self._quarantine.holds(r)]
        for request in self._under_way.drop(r.key for r in ours):
            self.taken -= request.key not in self._attempts
            self._end_in_error(self._quarantine.stand_in(request))
