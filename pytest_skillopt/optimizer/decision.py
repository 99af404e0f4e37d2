"""The running of one decision: draws out, samples in, counts kept, gaps noticed.

A gate is written as a generator that yields the rounds of samples it wants and returns its verdict.
What lies between, and is the same for every gate, stands here: which draw answers which want, when
a round is complete, what happens to a sample that could not be measured. So a gate sees complete
rounds of measurements only, and cannot depend on the order in which they came.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pytest_skillopt.optimizer.evidence import log_e
from pytest_skillopt.optimizer.metric import Metric
from pytest_skillopt.optimizer.verdict import Draw, TaskEvidence, Verdict
from pytest_skillopt.optimizer.wording import named

if TYPE_CHECKING:
    from pytest_skillopt.optimizer.metric import MetricName
    from pytest_skillopt.optimizer.verdict import Arm, Decision, Sample
    from pytest_skillopt.settings import Settings

INCUMBENT: Arm = "incumbent"
CANDIDATE: Arm = "candidate"
TAPE = "tape"
SCREEN = "screen"

DECISIVE = math.log(10)
"""Log e-value from which a single task is reported as fixed or broken."""
MAX_REPLACEMENTS = 3
"""Samples in a row that one task may fail to give before it counts as not measurable."""
MIN_ERRORS = 3
"""Infrastructure errors from which their share is looked at: one of ten says nothing."""


@dataclass(frozen=True, slots=True)
class GateTask:
    """What a gate knows of a task."""

    id: str
    must_pass: bool = False
    """A credible failure blocks, whatever else improves."""


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The gate's share of the settings; see ``settings.py`` for the ranges."""

    metric: MetricName = "hard"
    mixed_weight: float = 0.5
    rollouts: int = 3
    """Samples of each arm and task in the gates with a fixed number of them."""
    alpha: float = 0.05
    guard: float = 0.10
    k0: int = 3
    kc: int = 3
    kmax: int = 32
    focus: float = 0.3
    """E-value down to which a task still looks promising (or suspect) and is sampled again."""
    margin: float = 0.05
    alpha_run: float = 0.0
    trades: bool = False
    broad: bool = False
    deterministic: bool = False
    """A task has one fixed outcome under one skill (replay), so one sample tells all."""
    max_error_rate: float = 0.05
    first: tuple[str, ...] = ()
    """Tasks that come first where a gate takes them in an order; no verdict depends on it."""
    prior: float = 1.0
    """E-value of earlier samples that no gate draws again (say of trials on train tasks), for the
    same null hypothesis and already divided by the number of candidates it was the best of."""

    @classmethod
    def from_settings(cls, settings: Settings, *, deterministic: bool = False) -> GateOptions:
        return cls(
            metric=settings.metric,  # type: ignore[arg-type]  # checked against its choices
            mixed_weight=settings.mixed_weight,
            rollouts=settings.rollouts,
            alpha=settings.gate_alpha,
            guard=settings.gate_guard,
            k0=settings.gate_k0,
            kc=settings.gate_kc,
            kmax=settings.gate_kmax,
            margin=settings.gate_margin,
            alpha_run=settings.gate_alpha_run,
            trades=settings.gate_trades,
            broad=settings.gate_broad,
            deterministic=deterministic,
            max_error_rate=settings.max_error_rate,
        )

    def economy(self) -> GateOptions:
        """The same bounds for about four fifths of the samples, and a little less power."""
        return dataclasses.replace(self, k0=min(self.k0, 2), kc=min(self.kc, 2), focus=0.5)

    def thin(self) -> GateOptions:
        """The same bounds for three fifths of the samples.

        The literal rule is then often a matter of one round, so that edits which win as much as
        they lose come through more often; for an inner gate with a fresh comparison after it.
        """
        return dataclasses.replace(self, k0=1, kc=1, focus=0.5)

    def alpha_at(self, decisions_before: int) -> float:
        """Alpha of a decision; with ``alpha_run``, what the series 6 / (pi t)^2 leaves for it."""
        if not self.alpha_run:
            return self.alpha
        return self.alpha_run * 6 / (math.pi * (decisions_before + 1)) ** 2


class Want(NamedTuple):
    """One more sample of a task, whichever index it turns out to have."""

    arm: Arm
    task: str
    stream: str


class Round(NamedTuple):
    """Samples wanted at once, and those probably wanted next, the most useful first."""

    wants: Sequence[Want]
    outlook: Iterable[Want] = ()


Plan = Generator[Round, None, Verdict]


class Settled(Exception):
    """Raised from anywhere within a plan: the decision ends here, with this verdict."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


class Unmeasured(Exception):
    """The evidence cannot be obtained; ends the decision."""

    def __init__(self, reason: str, missing: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.missing = missing


class Tally:
    """Measurements of one task under one arm."""

    __slots__ = ("failures_in_a_row", "n", "passed", "rounds", "skipped", "total")

    def __init__(self) -> None:
        self.n = 0
        self.passed = 0
        self.total = 0.0
        """Sum of the metric."""
        self.rounds: list[bool] = []
        """Outcomes on the stream ``tape``, in the order of their indices."""
        self.skipped = False
        self.failures_in_a_row = 0

    @property
    def mean(self) -> float:
        """Mean of the metric, in [0, 1]; 0 where nothing was measured."""
        return self.total / self.n if self.n else 0.0


class SequentialGate:
    """Base of all gates: a subclass writes ``decide``, this class carries it out.

    Args:
        tasks: the suite, in any order.
        tape: how many samples of the incumbent's stream ``tape`` have been drawn before, by task.
            A function of earlier decisions alone, so that a verdict is one too.
        decision: names the fresh streams of this decision.
        decisions_before: decisions taken earlier in this run, for the spending of ``alpha_run``.

    Raises:
        ValueError: two tasks with one id, or a tape of a task that is not in the suite.
    """

    name: str

    def __init__(
        self,
        tasks: Sequence[GateTask],
        options: GateOptions | None = None,
        *,
        tape: Mapping[str, int] | None = None,
        decision: int | str | None = None,
        decisions_before: int = 0,
    ) -> None:
        self.options = options or GateOptions()
        self.metric = Metric(self.options.metric, self.options.mixed_weight)
        self.alpha = self.options.alpha_at(decisions_before)
        self.tasks = sorted(task.id for task in tasks)
        """Those that count; in one order always, so that the caller's order is without effect."""
        self.must_pass = frozenset(task.id for task in tasks if task.must_pass)
        self.old_tape = dict(tape or {})
        self.streams: dict[Arm, str] = {INCUMBENT: TAPE, CANDIDATE: SCREEN}
        """Where further samples of an arm come from, unless a step says otherwise."""
        self.decision = decision if decision is not None else decisions_before + 1
        _check_tasks(self.tasks, self.old_tape)

        self._tallies: dict[Arm, dict[str, Tally]] = {
            arm: {task: Tally() for task in self.tasks} for arm in (INCUMBENT, CANDIDATE)
        }
        self._all_tasks = self.tasks
        self._skipped: list[str] = []
        self._in_doubt: set[str] = set()
        self._errors: Counter[str] = Counter()
        self._drawn: Counter[Want] = Counter()
        self._batch: dict[Draw, Sample | None] = {}
        self._open = 0
        self._outlook: Iterable[Want] = ()
        self._plan = self.decide()
        self._verdict: Verdict | None = None

    def decide(self) -> Plan:
        """Yield the rounds that the decision needs, return the verdict."""
        raise NotImplementedError

    # The protocol.

    def ask(self) -> tuple[Draw, ...] | Verdict:
        """The draws that are needed now, all independent of each other, or the verdict."""
        if self._verdict is None and not self._batch:
            self._resume()
        return self._verdict if self._verdict is not None else tuple(self._batch)

    def tell(self, samples: Iterable[Sample]) -> None:
        """Answer draws of the current batch, in any order and in any portions.

        Raises:
            ValueError: a sample that was not asked for, that contradicts one told before, or whose
                score is not a number in [0, 1].
        """
        for sample in samples:
            self._note(sample)
        if self._batch and not self._open:
            self._close_batch()

    def likely(self, limit: int) -> tuple[Draw, ...]:
        """Up to ``limit`` draws that will probably be asked for after the current batch."""
        drawn = Counter[Want]()
        draws = []
        for want in islice(self._outlook, limit):
            draws.append(Draw(*want, index=self._drawn[want] + drawn[want]))
            drawn[want] += 1
        return tuple(draws)

    def tape(self, arm: Arm) -> dict[str, int]:
        """How many samples of the stream ``tape`` have been drawn of the arm that goes on."""
        return {
            task: drawn for task in self._all_tasks if (drawn := self._drawn[Want(arm, task, TAPE)])
        }

    # What gates are written with.

    def wants(self, arm: Arm, tasks: Iterable[str], stream: str | None = None) -> list[Want]:
        """One more sample each."""
        stream = stream or self.streams[arm]
        return [Want(arm, task, stream) for task in tasks]

    def again(self, tasks: Sequence[str], stream: str | None = None) -> list[Want]:
        """One more sample of both arms each, where the incumbent has not had enough of them.

        Args:
            stream: the candidate's, where it is not the usual one.
        """
        thin = [task for task in tasks if self.tally(INCUMBENT, task).n < self.options.kmax]
        return self.wants(CANDIDATE, tasks, stream) + self.wants(INCUMBENT, thin)

    def tally(self, arm: Arm, task: str) -> Tally:
        return self._tallies[arm][task]

    def mean(self, arm: Arm) -> float:
        """Suite mean of the metric, every task weighing the same."""
        tallies = self._tallies[arm]
        return math.fsum(tallies[task].mean for task in self.tasks) / len(self.tasks)

    def improves(self) -> bool:
        """The literal rule: the candidate's observed suite mean is strictly greater."""
        return self.mean(CANDIDATE) > self.mean(INCUMBENT) + 1e-12

    def up(self, task: str) -> float:
        """Log e-value that the candidate does better on the task."""
        new, old = self._tallies[CANDIDATE][task], self._tallies[INCUMBENT][task]
        return log_e(new.total, new.n, old.total, old.n)

    def down(self, task: str) -> float:
        """Log e-value that the candidate does worse: the same with the roles swapped."""
        new, old = self._tallies[CANDIDATE][task], self._tallies[INCUMBENT][task]
        return log_e(old.total, old.n, new.total, new.n)

    def fixed(self) -> list[str]:
        """Tasks that credibly improved."""
        return [task for task in self.tasks if self.up(task) >= DECISIVE]

    def broken(self) -> list[str]:
        """Tasks that credibly got worse."""
        return [task for task in self.tasks if self.down(task) >= DECISIVE]

    def compared(self, tasks: Sequence[str]) -> str:
        """The tasks with how often they passed under either skill."""
        pairs = [(t, self.tally(INCUMBENT, t), self.tally(CANDIDATE, t)) for t in tasks]
        return named(
            f"{task} (passed {old.passed} of {old.n} before, {new.passed} of {new.n} after)"
            for task, old, new in pairs
        )

    def settle(
        self, tasks: Sequence[str], bars: Mapping[str, float]
    ) -> Generator[Round, None, list[str]]:
        """Sample both arms of every task that looks broken until it no longer does.

        Args:
            tasks: the suspects are looked for among these.
            bars: log e-value from which a task counts as broken, for those that can block.

        Returns:
            The broken tasks, as soon as there is one.
        """
        least = math.log(self.options.focus)
        while True:
            down = {task: self.down(task) for task in tasks}
            if broken := [task for task in bars if down[task] >= bars[task]]:
                return broken
            suspects = self.unfinished(task for task in tasks if down[task] >= least)
            if not suspects:
                return []
            suspects.sort(key=lambda task: -down[task])
            yield Round(self.again(suspects), self.again(suspects) * 2)

    def unfinished(self, tasks: Iterable[str]) -> list[str]:
        """Those of which the candidate may still be sampled in this decision."""
        return [t for t in tasks if self.tally(CANDIDATE, t).n < self.options.kmax]

    def forget(self) -> None:
        """Count anew: what was measured so far has been judged."""
        for tallies in self._tallies.values():
            tallies.update((task, Tally()) for task in self.tasks)

    def guard_bars(self, tasks: Sequence[str]) -> dict[str, float]:
        """Log e-value from which each of the guarded tasks counts as broken.

        A union bound: the shares of the tasks add up to the guard's level, so that it blocks an
        edit which breaks nothing with at most that probability. Tasks that must pass have half of
        it among themselves, hence a lower bar: fewer failures are credible there.
        """
        must = [task for task in tasks if task in self.must_pass]
        rest = [task for task in tasks if task not in self.must_pass]
        parts = [part for part in (must, rest) if part]
        level = self.options.guard
        return {task: math.log(len(parts) * len(part) / level) for part in parts for task in part}

    def verdict(
        self, decision: Decision, reason: str, *, log_e: float | None = None, missing: str = ""
    ) -> Verdict:
        """The decision with all that is known; ``log_e`` is the evidence over the suite."""
        complete = {
            arm: bool(self.tasks) and all(self.tally(arm, task).n for task in self.tasks)
            for arm in (INCUMBENT, CANDIDATE)
        }
        return Verdict(
            decision=decision,
            reason=reason,
            gate=self.name,
            metric=self.metric.name,
            before=self.mean(INCUMBENT) if complete[INCUMBENT] else None,
            after=self.mean(CANDIDATE) if complete[CANDIDATE] else None,
            tasks=tuple(self._evidence(task) for task in self._all_tasks),
            e_value=None if log_e is None else math.exp(min(log_e, 700.0)),
            alpha=self.alpha,
            missing=missing,
            incumbent_samples=sum(tally.n for tally in self._tallies[INCUMBENT].values()),
            candidate_samples=sum(tally.n for tally in self._tallies[CANDIDATE].values()),
        )

    # The machinery.

    def _resume(self) -> None:
        """Let the plan go on to its next round, or to its end."""
        self._outlook = ()
        try:
            if not self.tasks:
                raise Unmeasured("there is no task to measure", "at least one task")
            following = next(self._plan)
        except StopIteration as end:
            self._verdict = end.value
        except Settled as end:
            self._verdict = end.verdict
        except Unmeasured as gap:
            self._give_up(gap)
        else:
            self._outlook = following.outlook
            self._open_batch(following.wants)

    def _open_batch(self, wants: Iterable[Want]) -> None:
        for want in wants:
            index = self._drawn.get(want, 0)
            self._batch[Draw(*want, index)] = None
            self._drawn[want] = index + 1
        self._open = len(self._batch)

    def _note(self, sample: Sample) -> None:
        known = self._batch.get(sample.draw, sample)
        if known is None:
            if sample.passed is not None:
                self.metric.value(sample)
            self._batch[sample.draw] = sample
            self._open -= 1
        elif sample.draw not in self._batch:
            raise ValueError(f"{sample.draw} was not asked for")
        elif known != sample:
            raise ValueError(f"{sample.draw} was told before with another outcome")

    def _close_batch(self) -> None:
        """Count a complete batch in the order of its draws, whatever the order of arrival."""
        batch, self._batch = self._batch, {}
        missing = [draw for draw, sample in batch.items() if sample and not self._count(sample)]
        try:
            self._check_errors()
            repeats = [*self._replacements(missing), *self._settle_skips()]
        except Unmeasured as gap:
            self._give_up(gap)
            return
        if repeats:
            self._open_batch(repeats)
        else:
            self._resume()

    def _count(self, sample: Sample) -> bool:
        """Whether the sample needs no replacement."""
        tally = self._tallies[sample.draw.arm][sample.draw.task]
        if sample.skipped:
            tally.skipped = True
            self._in_doubt.add(sample.draw.task)
        elif sample.passed is None:
            self._errors[sample.draw.task] += 1
            tally.failures_in_a_row += 1
            return False
        else:
            tally.n += 1
            tally.passed += sample.passed
            tally.total += self.metric.value(sample)
            tally.failures_in_a_row = 0
            if sample.draw.stream == TAPE:
                tally.rounds.append(sample.passed)
        return True

    def _check_errors(self) -> None:
        errors, drawn, limit = (
            self._errors.total(),
            self._drawn.total(),
            self.options.max_error_rate,
        )
        if errors >= (MIN_ERRORS if limit else 1) and errors > limit * drawn:
            raise Unmeasured(
                f"{errors} of {drawn} samples ended in infrastructure errors "
                f"(at most {limit:.0%} are allowed), so nothing is decided; they are of "
                f"{named(list(self._errors))}",
                f"{errors} samples of {named(list(self._errors))}",
            )

    def _replacements(self, missing: Iterable[Draw]) -> list[Want]:
        missing = list(missing)
        for draw in missing:
            if self._tallies[draw.arm][draw.task].failures_in_a_row > MAX_REPLACEMENTS:
                raise Unmeasured(
                    f"{draw.task} could not be measured under the {draw.arm}: "
                    f"{MAX_REPLACEMENTS + 1} infrastructure errors in a row",
                    f"{len(missing)} samples of {named([d.task for d in missing])}",
                )
        return [Want(draw.arm, draw.task, draw.stream) for draw in missing]

    def _settle_skips(self) -> list[Want]:
        """Drop the tasks that were skipped under both arms; ask where one arm is not known yet.

        A skip is part of how the task behaves under that skill, never an infrastructure error: a
        candidate under which a task skips must not be compared without it.
        """
        probes = []
        for task in sorted(self._in_doubt):
            tallies = {arm: self.tally(arm, task) for arm in (INCUMBENT, CANDIDATE)}
            skipped = [arm for arm, tally in tallies.items() if tally.skipped]
            if any(tally.n for tally in tallies.values()):
                raise Unmeasured(
                    f"{task} was skipped under the {skipped[0]} and measured besides, so the two "
                    "skills cannot be compared on the same tasks",
                    f"samples of {task} without a skip; or deselect it",
                )
            if len(skipped) == 2:
                self._in_doubt.discard(task)
                self._skipped.append(task)
            elif not tallies[_other(skipped[0])].failures_in_a_row:
                probes += self.wants(_other(skipped[0]), [task])
        if len(self.tasks) + len(self._skipped) > len(self._all_tasks):
            self.tasks = [task for task in self._all_tasks if task not in self._skipped]
        if not self.tasks:
            raise Unmeasured("every task was skipped", "at least one task that runs")
        return probes

    def _give_up(self, gap: Unmeasured) -> None:
        self._plan.close()
        self._verdict = self.verdict("unmeasured", gap.reason, missing=gap.missing)

    def _evidence(self, task: str) -> TaskEvidence:
        old, new = self._tallies[INCUMBENT][task], self._tallies[CANDIDATE][task]
        up, down = self.up(task), self.down(task)
        change: str = "same"
        if max(up, down) >= DECISIVE:
            change = "fixed" if up > down else "broken"
        elif max(up, down) >= 0:
            change = "undecided"
        return TaskEvidence(
            task=task,
            incumbent_passed=old.passed,
            incumbent_n=old.n,
            candidate_passed=new.passed,
            candidate_n=new.n,
            incumbent_score=old.mean,
            candidate_score=new.mean,
            e_up=math.exp(up),
            e_down=math.exp(down),
            change=change,  # type: ignore[arg-type]
            errors=self._errors[task],
            skipped=old.skipped and new.skipped,
        )


def _other(arm: Arm) -> Arm:
    return CANDIDATE if arm == INCUMBENT else INCUMBENT


def _check_tasks(tasks: Sequence[str], tape: Mapping[str, int]) -> None:
    if len(set(tasks)) < len(tasks):
        twice = next(task for task, count in Counter(tasks).items() if count > 1)
        raise ValueError(f"the task {twice} is in the suite twice")
    if unknown := sorted(set(tape) - set(tasks)):
        raise ValueError(f"the tape holds samples of {named(unknown)}, not in the suite")
