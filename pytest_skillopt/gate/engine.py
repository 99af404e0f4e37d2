"""Base of all gates: draw samples, count them, replace those that could not be measured.

A gate is a generator that yields the rounds of samples it wants and returns its verdict. It only
sees complete rounds of measurements, and cannot depend on the order in which they arrived.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from pytest_skillopt.gate.counts import Counts
from pytest_skillopt.gate.data import (
    ARMS,
    CANDIDATE,
    INCUMBENT,
    MOST_OF_TASK,
    SCREEN,
    TAPE,
    Draw,
    GateOptions,
    GateTask,
    Verdict,
)
from pytest_skillopt.gate.statistics import chance_of
from pytest_skillopt.model.purse import Purse
from pytest_skillopt.words import named

if TYPE_CHECKING:
    from pytest_skillopt.gate.data import Arm, Decision, Sample

GUARD = 0.10
"""Maximum probability of refusing an edit for a broken task although it breaks nothing."""
SUSPECT = 1.5
"""E-value from which a task looks broken and is sampled again."""
CREDIBLE = math.log(30)
"""Log e-value from which a task that cannot refuse the edit is broken and not sampled again."""
FALLEN = -0.9
"""Least change of the mean of the val tasks, or of the trigger tasks of a kind, over its standard
deviation."""
MORE = 4
"""Most further pairs of each trigger task of a kind whose mean is lower."""
NOTHING = 1e-12
"""Absolute value up to which a sum of rates is zero: rounding errors."""
UNLIKELY = 0.05
"""Chance, at the allowed share of infrastructure errors, of at least as many as there were, up to
which the true share is credibly larger."""


class Want(NamedTuple):
    """One more sample of a task, with the next index of the stream."""

    arm: Arm
    task: str
    stream: str


Wants = Sequence[Want]
"""Samples wanted at once; an empty sequence is not a round."""
Plan = Generator[Wants, None, Verdict]


class Unmeasured(Exception):
    """Evidence that cannot be obtained, with the reason; ends the decision."""


class SequentialGate:
    """Base of all gates: carry out the method ``decide`` of a subclass.

    It asks for the next draws only after all previous ones were answered. So timing, the number of
    workers and prefetched samples never change a verdict.

    Args:
        tasks: the suite, in any order.
        options: levels and numbers of samples.
        decision: names the fresh streams of this decision.

    Raises:
        ValueError: two tasks with one id.
    """

    name: str
    validated = True
    """False if nothing is tested."""
    margin = 0.0
    """Fall of the mean pass rate, in [0, 1), that it allows to a shorter skill."""

    @classmethod
    def recheck(cls, counts: Sequence[tuple[int, int, int, int]]) -> str:
        """Return why the counts of a result do not show what the rule claims, or "".

        Args:
            counts: passed and n after, passed and n before, for each task; n > 0.
        """
        after = sum(Fraction(passed, n) for passed, n, _, _ in counts)
        before = sum(Fraction(passed, n) for _, _, passed, n in counts)
        if after > before:  # a tie is not an improvement
            return ""
        old, new = (f"{float(100 * rate / len(counts)):.1f} %" for rate in (before, after))
        return f"the counts do not support the verdict: pass rate {old} before, {new} after"

    def __init__(
        self,
        tasks: Sequence[GateTask],
        options: GateOptions | None = None,
        *,
        decision: int | str = 1,
    ) -> None:
        self.options = options or GateOptions()
        # Sort, so that the caller's order has no effect.
        names = sorted(task.id for task in tasks)
        self.counts = Counts(names, self.options.metric)
        self.must_pass = frozenset(task.id for task in tasks if task.must_pass)
        self.triggers = {task.id: task.trigger for task in tasks if task.trigger is not None}
        self.streams: dict[Arm, str] = {INCUMBENT: TAPE, CANDIDATE: SCREEN}
        """Stream of further samples by arm."""
        self.decision = decision
        self.purse = Purse()
        """Pays for the samples; without caps if nobody sets another one."""
        if twice := [task for task, count in Counter(names).items() if count > 1]:
            raise ValueError(f"the task {twice[0]} is in the suite twice")
        self._drawn: Counter[Want] = Counter()
        """Number of samples that were asked for."""
        self._batch: dict[Draw, Sample | None] = {}
        """Open draws, each with its sample once it was told."""
        self._plan = self.decide()
        self._verdict: Verdict | None = None

    def decide(self) -> Plan:
        """Yield the rounds that the decision needs; return the verdict."""
        raise NotImplementedError

    def ask(self) -> tuple[Draw, ...] | Verdict:
        """Return the open draws, which are independent, or the verdict."""
        if self._verdict is None and not self._batch:
            self._go_on()
        return self._verdict or tuple(self._batch)

    def tell(self, samples: Iterable[Sample]) -> None:
        """Answer draws of the current batch, in any order and in any portions.

        Raises:
            ValueError: a sample that was not asked for, that contradicts one told before, or whose
                score is not a number in [0, 1].
        """
        for sample in samples:
            if sample.draw not in self._batch:
                raise ValueError(f"{sample.draw} was not asked for")
            if self._batch[sample.draw] not in (None, sample):
                raise ValueError(f"{sample.draw} was told before with another outcome")
            self._batch[sample.draw] = sample
        if self._batch and None not in self._batch.values():
            self._go_on()

    @property
    def tasks(self) -> list[str]:
        """Tasks that count, in order: all except those that were skipped or left out."""
        return self.counts.tasks

    def wants(self, arm: Arm, tasks: Iterable[str]) -> list[Want]:
        """Return one more sample of each task."""
        return [Want(arm, task, self.streams[arm]) for task in tasks]

    def sample_from(self, stream: str) -> None:
        """Take all further samples from a stream that only this decision uses."""
        self.streams = dict.fromkeys(self.streams, f"{stream}/{self.decision}")

    def pairs(self, tasks: Sequence[str]) -> list[Want]:
        """Return one more sample of both arms of each task."""
        return self.wants(CANDIDATE, tasks) + self.wants(INCUMBENT, tasks)

    def whole_rounds(self, rounds: int) -> list[Want]:
        """Return ``rounds`` more samples of both arms of every task."""
        return (self.wants(INCUMBENT, self.tasks) + self.wants(CANDIDATE, self.tasks)) * rounds

    def again(self, tasks: Sequence[str]) -> list[Want]:
        """Return one more sample of both arms of each task, as far as the incumbent has few."""
        thin = [task for task in tasks if self.counts[INCUMBENT, task].n < MOST_OF_TASK]
        return self.wants(CANDIDATE, tasks) + self.wants(INCUMBENT, thin)

    @property
    def limit(self) -> float:
        """Largest number of samples of the decision."""
        return math.inf if self.options.budget is None else self.options.budget

    @property
    def is_cut(self) -> bool:
        """Whether a cap left too few samples for another verdict than a rejection.

        Samples of a task that broke would have been taken in vain. A gate without a largest number
        of samples says so itself.
        """
        verdict = self._verdict
        left = self.limit - self._drawn.total()
        if verdict is None or verdict.decision != "rejected" or verdict.names("broken"):
            return False
        return 2 <= left < math.inf and self.purse.affordable() < 2

    def affordable(self, samples: int) -> int:
        """Return this number of samples, or as many as the limit and the caps leave."""
        left = min(self.limit - self._drawn.total(), self.purse.affordable())
        return max(0, int(min(samples, left)))

    def _sides(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the trigger tasks that count of either kind, after where the skill is asked for."""
        for where, asks in (("should", True), ("should not", False)):
            if side := [task for task in self.tasks if self.triggers.get(task) is asks]:
                yield where, side

    def follow_sides(self) -> Generator[Wants, None, None]:
        """Sample both arms of the trigger tasks of a kind again if their mean is lower.

        A few samples of near misses fall by chance; as many again tell that from a loss.
        """
        for _, side in self._sides():
            if self.counts.score(side) >= 0:
                continue
            more = [task for task in side for _ in range(self._more_of(task))]
            more = more[: self.affordable(2 * len(more)) // 2]
            if more:
                yield self.pairs(more)

    def _more_of(self, task: str) -> int:
        """Return how many pairs the task has, at most ``MORE``."""
        return min(MORE, *(self.counts[arm, task].n for arm in ARMS))

    def fallen_side(self) -> str:
        """Describe the kind of trigger tasks that is likely to have fallen; empty if neither is.

        A task that was not sampled counts as one that fails only under the candidate.
        """
        for where, side in self._sides():
            known = all(self.counts[INCUMBENT, task].n for task in side)
            fall = -self.counts.gain(side, missing=1)
            if self.counts.score(side) < FALLEN or (not known and fall > NOTHING):
                most = "" if known else "up to "
                return (
                    f"the skill is asked for less well where it {where} be: "
                    f"the mean fell by {most}{100 * fall / len(side):.1f} points"
                )
        return ""

    def follow_suspects(
        self, tasks: Sequence[str], least: float = SUSPECT
    ) -> Generator[Wants, None, list[str]]:
        """Sample both arms of each task that looks broken until it does not, or credibly is.

        Tasks that must pass come first, then the worst ones, as far as the budget reaches. A task
        looks broken from the e-value ``least`` on. Returns the broken tasks that can refuse the
        edit, as soon as there is one.
        """
        while True:
            down = {task: self.counts.down(task) for task in tasks}
            bars = self.guard_bars()
            if broken := [task for task in bars if task in down and down[task] >= bars[task]]:
                return broken
            suspects = self.unfinished(
                task
                for task in tasks
                if math.log(least) <= down[task] < bars.get(task, CREDIBLE)
                and self.counts[INCUMBENT, task].n
            )
            suspects.sort(key=lambda task: (task not in self.must_pass, -down[task]))
            suspects = suspects[: self.affordable(2 * len(suspects)) // 2]
            if not suspects:
                return []
            yield self.again(suspects)

    def refuse_for(self, broken: Sequence[str]) -> str:
        """Describe the tasks that refuse the edit."""
        must = "" if self.must_pass.isdisjoint(broken) else "must pass, but "
        return f"{must}broken: {self.counts.compared(broken)}"

    def named_breaks(self) -> str:
        """Describe the tasks that credibly broke, to begin a reason; empty if none did."""
        broken = self.counts.broken()
        return f"broken: {self.counts.compared(broken)}; " if broken else ""

    def unfinished(self, tasks: Iterable[str]) -> list[str]:
        """Return the tasks of which the candidate may still be sampled in this decision."""
        return [task for task in tasks if self.counts[CANDIDATE, task].n < MOST_OF_TASK]

    def guard_bars(self) -> dict[str, float]:
        """Return the tasks that can refuse the edit, each with its log e-value for being broken.

        The shares of the tasks add up to ``GUARD`` (union bound), so an edit that breaks nothing
        is refused with at most this probability.
        """
        must = [task for task in self.tasks if task in self.must_pass]
        return {task: math.log(len(must) / GUARD) for task in must}

    def verdict(self, decision: Decision, reason: str, *, log_e: float | None = None) -> Verdict:
        """Return the verdict with all counts; ``log_e`` is the evidence over the suite."""
        counts = self.counts
        options = self.options
        if counts.left_out:
            left_out = named(counts.left_out)
            reason += f"; left out: {left_out}, with nothing but infrastructure errors under both"
        e_value = None if log_e is None else math.exp(min(log_e, 700.0))
        tasks = tuple(counts.evidence(task) for task in counts.all_tasks)
        return Verdict(
            decision=decision,
            reason=reason,
            gate=self.name,
            final=options.final,
            validated=self.validated,
            metric=options.metric,
            before=counts.rate(INCUMBENT),
            after=counts.rate(CANDIDATE),
            tasks=tasks,
            e_value=e_value,
            alpha=options.alpha,
            incumbent_samples=counts.samples(INCUMBENT),
            candidate_samples=counts.samples(CANDIDATE),
        )

    def _go_on(self) -> None:
        """Count a complete batch, then replace unmeasured samples or start the next round."""
        try:
            if not self.counts.all_tasks:
                raise Unmeasured("there is no task to measure")
            replacements = self._count_batch()
            # Beyond a cap, a sample less is better than no verdict.
            self._open(replacements[: self.affordable(len(replacements))])
            while not self._batch:
                self._open(next(self._plan))
        except StopIteration as end:
            self._verdict = end.value
        except Unmeasured as gap:
            self._plan.close()
            self._verdict = self.verdict("unmeasured", str(gap))

    def _open(self, wants: Iterable[Want]) -> None:
        for want in wants:
            self._batch[Draw(*want, self._drawn[want])] = None
            self._drawn[want] += 1

    def _count_batch(self) -> list[Want]:
        """Count the batch in the order of its draws; return the samples to replace."""
        batch = self._batch
        self._batch = {}
        missing = [draw for draw, sample in batch.items() if sample and not self.counts.add(sample)]
        repeats = [
            Want(draw.arm, draw.task, draw.stream)
            for draw in missing
            if not self.counts[draw.arm, draw.task].is_unmeasurable
        ]
        repeats += self._leave_out()
        self._check_errors()
        return repeats

    def _check_errors(self) -> None:
        """Raise Unmeasured if credibly too many samples ended in infrastructure errors.

        By chance a true share of 2.7 % is above 5 % in one of six decisions of 54 samples. Tasks
        that gave only errors do not count if they are few enough to be left out.
        """
        counts = self.counts
        limit = self.options.max_error_rate
        drawn = self._drawn.total()
        errors = counts.errors
        unmeasured = [task for task in errors if task not in counts.measured]
        if len(unmeasured) <= limit * len(counts.all_tasks):
            errors = Counter({task: n for task, n in errors.items() if task not in unmeasured})
            drawn -= sum(counts.errors[task] for task in unmeasured)
        count = errors.total()
        if count and chance_of(count, drawn, limit) <= UNLIKELY:
            raise Unmeasured(
                f"{count} of {drawn} samples ended in infrastructure errors "
                f"(at most {limit:.0%} are allowed), so nothing is decided; they are of "
                f"{named(list(errors))}"
            )

    def _check_comparable(self, task: str, failing: Sequence[Arm], skipped: Sequence[Arm]) -> None:
        """Raise Unmeasured if a task fails or is skipped under some arms and may not be dropped."""
        counts = self.counts
        if failing and (skipped or task in self.must_pass or task in counts.measured):
            raise Unmeasured(
                f"{task} could not be measured under the {failing[0]}: "
                f"{counts[failing[0], task].failures_in_a_row} infrastructure errors in a row"
            )
        if skipped and any(counts[arm, task].n for arm in ARMS):
            raise Unmeasured(
                f"{task} was skipped under the {skipped[0]} and measured besides, so the two "
                "skills cannot be compared on the same tasks; deselect it"
            )

    def _leave_out(self) -> list[Want]:
        """Drop the tasks that give only errors, or only skips, under both arms.

        A task that was measured once, under either arm, is never dropped for errors, since they
        may depend on its outcome (docs/decisions/gate.md), nor one that must pass. A skip may be an
        effect of the skill: a candidate that makes a task skip is not compared without that task.

        Returns:
            Samples of the other arm, of tasks that so far could not be measured under one arm.

        Raises:
            Unmeasured: a task cannot be measured and may not be dropped, or no task is left.
        """
        counts = self.counts
        limit = self.options.max_error_rate
        probes: list[Want] = []
        gone = []
        for task in counts.tasks:
            failing = [arm for arm in ARMS if counts[arm, task].is_unmeasurable]
            skipped = [arm for arm in ARMS if counts[arm, task].skipped]
            self._check_comparable(task, failing, skipped)
            if len(failing or skipped) == 2:
                gone.append(task)
                counts.left_out += [task] if failing else []
                continue
            for arm in failing or skipped:
                other = CANDIDATE if arm == INCUMBENT else INCUMBENT
                if not counts[other, task].failures_in_a_row:
                    probes += self.wants(other, [task])
        counts.tasks = [task for task in counts.tasks if task not in gone]
        if len(counts.left_out) > limit * len(counts.all_tasks):
            raise Unmeasured(
                f"{named(counts.left_out)} gave nothing but infrastructure errors under both "
                f"skills; of {len(counts.all_tasks)} tasks at most {limit:.0%} may be left out "
                "(skillopt_max_error_rate), or deselect what cannot run"
            )
        if not counts.tasks:
            words = "skipped or left out" if counts.left_out else "skipped"
            raise Unmeasured(f"every task was {words}")
        return probes


def run_gate(gate: SequentialGate, take: Callable[[Sequence[Draw]], Iterable[Sample]]) -> Verdict:
    """Take what the gate asks for until it has decided."""
    while not isinstance(asked := gate.ask(), Verdict):
        gate.tell(take(asked))
    return asked
