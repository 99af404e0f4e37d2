"""Take every sample once: from the run's ledger, else through the executor.

Infrastructure errors are retried here; the last one comes back as a rollout. A task that costs a
worker or a time-out every time it runs is quarantined (docs/decisions/gate.md). Spending caps,
fatal faults and consecutive errors raise ``StopRun``, after every paid rollout has been stored in
the ledger.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from pytest_skillopt.model.purse import Amounts, Purse
from pytest_skillopt.model.types import CapReached, Usage
from pytest_skillopt.rollouts.executor import ExecutorClosed
from pytest_skillopt.rollouts.rollout import InfraError, Rollout, RolloutRequest
from pytest_skillopt.settings import Settings
from pytest_skillopt.untrusted import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_skillopt.model.limits import Meter
    from pytest_skillopt.rollouts.executor import Executor
    from pytest_skillopt.skill.version import Version
    from pytest_skillopt.tasks.task import SkillTask


_LOG = logger(__name__)
OWN_AGENT = "own agent"
"""Role in the accounts for usage that tests report with ``rollout.usage``."""
_COSTLY = ("worker", "timeout")
"""Kinds of errors that a task causes itself and that cost a process or minutes each."""
MOST_ERRORS = 5
"""Errors in a row after which a task is quarantined under that version: costly ones, and others if
something was measured meanwhile."""
_MANY = 5
"""Rollouts after which an error that every one of them has ended in is that of the tests."""
_OF_ALL = {
    "setup": "no task can be set up",
    "teardown": "no task that passes can be torn down",
}
"""Kinds of errors that end the run if every task ends in them, in words."""
_VERSIONS = 2
"""Quarantines under different versions after which an unmeasured task is quarantined under all."""


class Ledger(Protocol):
    """Storage of finished rollouts."""

    def get(self, key: str) -> Rollout | None:
        """Return the rollout with this request key, or None.

        It was measured or skipped, or is an error by which an earlier session has decided.
        """

    def put(self, rollout: Rollout) -> None:
        """Store a rollout permanently, before anything depends on it."""

    def lose(self, rollout: Rollout) -> None:
        """Hold an error that the sampler has returned until a decision goes by it."""

    def __contains__(self, key: str) -> bool: ...


class MemoryLedger(dict[str, "Rollout"]):
    """Rollouts by the key of their request, without errors, of one process."""

    def put(self, rollout: Rollout) -> None:
        if rollout.error is None:
            self[rollout.request.key] = rollout

    def lose(self, rollout: Rollout) -> None:
        """Forget it: nothing is continued."""


class Stop(StrEnum):
    """Kinds of the end of a run, or of a search, before it has done all."""

    CAP = "cap"
    SPENT = "spent"
    """A search has had all samples that it may take."""
    INTERRUPTED = "interrupted"
    FATAL = "fatal"
    BREAKER = "breaker"
    """Too many infrastructure errors in a row."""
    UNREADABLE = "unreadable"
    """Too many unreadable replies of the optimizer in a row."""
    UNMEASURED = "unmeasured"
    """No train task could be measured."""


OF_ONE_SKILL = (Stop.BREAKER, Stop.FATAL)
"""Ends that the tests of one skill may have caused, so that another skill may be measured."""


class StopRun(Exception):
    """Stop the run in a state that can be resumed."""

    def __init__(self, reason: str, *, kind: Stop = Stop.CAP) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind


class Sampler:
    """Take requests and return their rollouts in the same order.

    Args:
        ledger: stores finished rollouts; None: in memory.
        model: fingerprint of the target model.
        settings: the settings; None: the defaults.
        meter: counts the usage that tests report for their own agents and checks caps; None: none.
    """

    decides = True
    """Whether the rollouts decide about versions of a skill. A task that the provider refuses for
    good then counts as skipped, so that the others decide, and one error in every test ends the
    run. Otherwise each is an outcome of its task."""
    on_rollout: Callable[[Rollout], None] = staticmethod(lambda rollout: None)
    """Called with every rollout that was run, as it arrives."""
    on_version: Callable[[str, bytes], None] = staticmethod(lambda version, content: None)
    """Called with every new version of a skill and its bytes."""

    def __init__(
        self,
        executor: Executor,
        tasks: Iterable[SkillTask],
        ledger: Ledger | None = None,
        *,
        model: str = "",
        settings: Settings | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._executor = executor
        self._tasks = {task.id: task for task in tasks}
        self._ledger: Ledger = MemoryLedger() if ledger is None else ledger
        self._model = model
        self._settings = settings or Settings()
        self._meter = meter
        self._faults_of_tests: dict[str, str] = {}
        """Messages of measured rollouts, by the place of an exception that is the test's fault; of
        all other rollouts by ""."""
        self._judged = 0
        """Number of rollouts that were looked at for it."""
        self._unset: set[str] = set()
        """Tasks whose set-up or teardown has failed."""
        self.purse = meter.purse if meter else Purse(Amounts.caps_of(self._settings))
        """Bounds what this session pays."""
        self.purse.at_once = lambda: self.at_once
        self._versions: set[tuple[str, str]] = set()
        self._begun: dict[str, RolloutRequest] = {}
        """Started requests without a rollout yet."""
        self._reports = False
        """True if a test has reported usage, which only the sampler can stop at a cap."""
        self._refused = ""
        """Reason why nothing more can be paid: the error of a rollout that a limit has ended."""
        self._attempts: dict[str, int] = {}
        self._errors: dict[str, Rollout] = {}
        """Final infrastructure errors, by key."""
        self._errors_in_a_row = 0
        self._ended: dict[str, Rollout] = {}
        """Rollouts that ``take`` has not collected yet, by key."""
        self._counted: set[str] = set()
        self._failed: dict[tuple[str, str], tuple[int, int]] = {}
        """Consecutive errors, by task and version, and the measurements at the last one."""
        self._measurements = 0
        """Number of rollouts that were measured."""
        self._quarantine: dict[str, dict[str, InfraError]] = {}
        """The last error of each quarantined task, by task and version."""
        self._measured: set[str] = set()
        self.notes: list[str] = []
        self.outcomes: dict[str, tuple[int, int]] = {}
        """Passed and measured rollouts, those from the ledger included, by task."""
        self.usage: dict[str, Usage] = {}
        """Usage of all rollouts, those from the ledger included, by task."""

    def aside(self) -> Sampler:
        """Return a sampler over the same workers whose rollouts are free and count nowhere."""
        free = Settings(timeout=self._settings.timeout, max_attempts=1, breaker=10**9)
        aside = Sampler(self._executor, self._tasks.values(), model=self._model, settings=free)
        aside.decides = False
        return aside

    @property
    def taken(self) -> int:
        """Rollouts that this process started and no cap cut off, without those from the ledger."""
        return self.purse.started

    @property
    def rollouts_left(self) -> int | None:
        left = self.purse.rollouts_left
        return None if left == math.inf else int(left)

    @property
    def errors(self) -> int:
        """Number of requests with a final infrastructure error."""
        return len(self._errors)

    @property
    def at_once(self) -> int:
        return self._executor.capacity

    @property
    def ended(self) -> str:
        return self._executor.ended

    def add_version(self, skill: str, version: Version) -> str:
        """Send a version of a skill to the workers and return its digest."""
        digest = version.digest
        if (skill, digest) not in self._versions:
            self._versions.add((skill, digest))
            self._executor.add_version(skill, digest, version.packed)
            self.on_version(digest, version.packed)
        return digest

    def request(self, task: str, version: str, stream: str, index: int) -> RolloutRequest:
        """Make the request for sample ``index`` of a stream, task (node id) and version."""
        known = self._tasks[task]
        return RolloutRequest(task, known.source, known.skill, version, self._model, stream, index)

    def known(self, request: RolloutRequest) -> bool:
        return request.key in self._ledger

    def kept(self, requests: Iterable[RolloutRequest]) -> list[Rollout]:
        """Return those rollouts of requests that are there, as after a stop."""
        return [self._result(request.key) for request in requests if self.known(request)]

    def take(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        """Return one rollout per request, in order; block until all are there.

        If all attempts ended in infrastructure errors, the rollout's outcome is ``error``.

        Raises:
            StopRun: a cap, a fatal fault, too many errors in a row, or an interrupt.
        """
        wanted = list(dict.fromkeys(requests))
        for request in wanted:
            known = request.key in self._begun or self._resolved(request.key)
            if not known and self._is_quarantined(request):
                self._end_quarantined(request)
        missing = [r for r in wanted if not self._resolved(r.key)]
        self._start([r for r in missing if r.key not in self._begun])
        waiting = {r.key for r in missing}
        _LOG.debug("waits for %d of %d rollouts", len(waiting), len(wanted))
        came: dict[str, Rollout] = {}
        while waiting:
            reason = self._spent()
            if reason and self._drop() & waiting:
                raise StopRun(reason)
            self._receive()
            waiting.difference_update(self._ended)
            came |= self._ended
            self._ended.clear()
        found = [came.get(r.key) or self._result(r.key) for r in requests]
        for rollout in found:
            if rollout.error is not None:
                self._ledger.lose(rollout)
        if self.decides:
            self._stop_if_every_test_is_wrong(found)
        return found

    def _stop_if_every_test_is_wrong(self, found: Iterable[Rollout]) -> None:
        """Raise StopRun if every rollout so far has ended in one exception of the tests' own."""
        for rollout in found:
            if rollout.measured:
                place = rollout.location if rollout.fault_of_test else ""
                self._faults_of_tests[place] = rollout.message
                self._judged += 1
        faults = self._faults_of_tests
        if "" in faults or len(faults) != 1 or self._judged < _MANY:
            return
        ((place, message),) = faults.items()
        first = message.partition("\n")[0]
        raise StopRun(
            f"every rollout ends in one error at {place}, {first}: no skill can mend that; correct "
            "the test and run it again",
            kind=Stop.FATAL,
        )

    def settle(self) -> int:
        """Wait for running rollouts, which are paid for, and drop the others.

        Errors in a row are counted anew: what follows may be tests that have none.

        Returns:
            Number of rollouts lost by an interrupt of the session.
        """
        self._drop()
        while self._begun:
            try:
                rollout = self._executor.next()
            except (ExecutorClosed, KeyboardInterrupt, RuntimeError):
                break  # by the executor's protocol no more rollouts will come
            if self._begun.pop(rollout.request.key, None) is not None:
                self._keep(rollout)
        lost = len(self._begun)
        self._begun.clear()
        self._errors_in_a_row = 0
        return lost

    # Starting rollouts.

    def _start(self, requests: Sequence[RolloutRequest]) -> None:
        if not requests:
            return
        left = self.rollouts_left
        if left is not None and len(requests) > left:
            said = f"is reached: {self.taken} were run and the next {len(requests)} do not fit"
            raise StopRun(f"--skillopt-max-rollouts={self._settings.max_rollouts} {said}")
        if reason := self._spent():
            raise StopRun(reason)
        self.purse.count_started(len(requests))
        self._begun |= {request.key: request for request in requests}
        self._executor.submit(requests)

    def _spent(self) -> str:
        """Name the cap that is used up, if any; the meter itself stops the package's own calls."""
        if self._refused:
            return self._refused
        check = self.purse.check if self._reports else self.purse.check_time
        try:
            check()
        except CapReached as cap:
            return str(cap)
        return ""

    def _drop(self, keys: Iterable[str] | None = None) -> set[str]:
        wanted = self._begun if keys is None else keys
        dropped = self._executor.cancel(set(wanted))
        for key in dropped:
            del self._begun[key]
            if key not in self._attempts:
                self.purse.count_started(-1)
        return dropped

    # Receiving rollouts.

    def _receive(self) -> None:
        try:
            rollout = self._executor.next()
        except ExecutorClosed as closed:
            raise StopRun(str(closed), kind=Stop.INTERRUPTED) from closed
        except KeyboardInterrupt as interrupt:
            raise StopRun("the session was interrupted", kind=Stop.INTERRUPTED) from interrupt
        if rollout.request.key in self._begun:
            self._finish(rollout)

    def _finish(self, rollout: Rollout) -> None:
        rollout = self._keep(rollout)
        request = rollout.request
        error = rollout.error
        if error is not None and error.refused and request.task not in self._measured:
            self._put_away(request, error)
        elif error is None:
            self._end(rollout)
            self._attempts.pop(request.key, None)
        else:
            self._attempts[request.key] = rollout.attempt
            self._errors_in_a_row += 1
            self._count_for_quarantine(request, error)
            self._stop_if_hopeless(request, error)
            left = rollout.attempt < self._settings.max_attempts
            retry = left and not self._is_quarantined(request)
            then = "is run again" if retry else "is not run again"
            _LOG.info(
                "%s %s after attempt %d: %s", request.task, then, rollout.attempt, error.message
            )
            if retry:
                self._executor.submit([request])
            else:
                self._end(rollout)
        self.on_rollout(rollout)

    def _keep(self, rollout: Rollout) -> Rollout:
        request = rollout.request
        rollout = replace(rollout, attempt=self._attempts.get(request.key, 0) + 1)
        self._count(rollout)
        if self._meter is not None and rollout.reported != Usage():
            self._reports = True
            self._meter.note(rollout.reported, (OWN_AGENT, request.stage, request.task))
        self._ledger.put(rollout)
        if rollout.error is not None and rollout.error.kind == "cap":
            self.purse.count_started(-1)  # it was cut off, and a continued run takes it again
        return rollout

    def _stop_if_hopeless(self, request: RolloutRequest, error: InfraError) -> None:
        if error.kind == "cap":
            self._refused = error.message
            stop = StopRun(error.message)
        elif error.fatal or error.kind == "cache":
            stop = StopRun(f"{request.task}: {error.message}", kind=Stop.FATAL)
        elif error.kind in _OF_ALL and self._is_of_all(request.task, error.kind):
            said = f"{_OF_ALL[error.kind]}, {request.task}: {error.message}"
            stop = StopRun(said, kind=Stop.FATAL)
        elif self._errors_in_a_row >= max(self._settings.breaker, 2 * self._executor.capacity):
            many = f"{self._errors_in_a_row} attempts in a row ended in infrastructure errors"
            stop = StopRun(
                f"{many}, the last in {request.task}: {error.message}", kind=Stop.BREAKER
            )
        else:
            return
        del self._begun[request.key]
        raise stop

    def _is_of_all(self, task: str, kind: str) -> bool:
        """Return whether none of many tasks, such as this one, could end otherwise.

        A teardown that fails hides passes only: a failed test was measured before it.
        """
        self._unset.add(task)
        others = bool(self._measured)
        if kind == "teardown":
            others = any(passed for passed, _ in self.outcomes.values())
        return not others and len(self._unset) >= min(_MANY, len(self._tasks))

    def _end(self, rollout: Rollout) -> None:
        key = rollout.request.key
        self._begun.pop(key, None)
        self._ended[key] = rollout
        if rollout.error is not None:
            self._errors[key] = rollout

    def _resolved(self, key: str) -> bool:
        return key in self._errors or key in self._ledger

    def _result(self, key: str) -> Rollout:
        rollout = self._errors.get(key) or self._ledger.get(key)
        assert rollout is not None, key
        if key not in self._counted:
            self._count(rollout)
            if rollout.error is not None:
                self._errors[key] = rollout
        return rollout

    def _count(self, rollout: Rollout) -> None:
        task = rollout.request.task
        self._counted.add(rollout.request.key)
        self.usage[task] = self.usage.get(task, Usage()) + rollout.all_usage
        if rollout.error is None and not rollout.refused:
            self._measured.add(task)
            self._measurements += 1
            self._failed.pop((task, rollout.request.version), None)
            self._errors_in_a_row = 0
        if rollout.measured:
            passed, measured = self.outcomes.get(task, (0, 0))
            self.outcomes[task] = passed + bool(rollout.passed), measured + 1

    # Quarantined tasks.

    def _put_away(self, request: RolloutRequest, error: InfraError) -> None:
        """Run a task no more that the provider refuses for good, and let the others go on."""
        why = f"the provider refuses it: {error.message}"
        if request.task not in self._quarantine:
            out = f"leave it out by --deselect={request.task}"
            self.notes.append(f"{request.task} is put away, {why}; {out}")
        self._end_refused(request, error)
        self._quarantine_task(request, error)

    def _end_refused(self, request: RolloutRequest, error: InfraError) -> None:
        rollout = Rollout.of_error(request, error.kind, error.message)
        if self.decides:
            said = f"put away, the provider refuses it: {error.message}"
            rollout = Rollout(request, "skipped", message=said, refused=True)
            self._ledger.put(rollout)
        self._end(rollout)

    def _count_for_quarantine(self, request: RolloutRequest, error: InfraError) -> None:
        key = request.task, request.version
        count, measured = self._failed.get(key, (0, -1))
        # In an outage nothing is measured in between: then the task is not to blame.
        count += error.kind in _COSTLY or self._measurements > measured
        self._failed[key] = count, self._measurements
        if count >= MOST_ERRORS and not self._is_quarantined(request):
            under = f"version {request.version[:10]} of the skill"
            ended = f"{MOST_ERRORS} errors in a row, the last: {error.message}"
            self.notes.append(f"{request.task} is not run again under {under}: {ended}")
            self._quarantine_task(request, error)

    def _quarantine_task(self, request: RolloutRequest, error: InfraError) -> None:
        self._quarantine.setdefault(request.task, {})[request.version] = error
        same_task = (r for r in self._begun.values() if r.task == request.task)
        waiting = {r.key: r for r in same_task if r != request and self._is_quarantined(r)}
        for dropped in self._drop(waiting):
            self._end_quarantined(waiting[dropped])

    def _is_quarantined(self, request: RolloutRequest) -> bool:
        versions = self._quarantine.get(request.task, {})
        never = len(versions) >= _VERSIONS and request.task not in self._measured
        return never or request.version in versions

    def _end_quarantined(self, request: RolloutRequest) -> None:
        last = next(reversed(self._quarantine[request.task].values()))
        if last.refused:
            self._end_refused(request, last)
            return
        words = f"not run again after {MOST_ERRORS} errors: {last.message}"
        self._end(Rollout.of_error(request, last.kind, words))
