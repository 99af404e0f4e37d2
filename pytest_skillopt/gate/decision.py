"""The running of one decision: draws out, samples in, counts kept, gaps noticed.

A gate is written as a generator that yields the rounds of samples it wants and returns its verdict.
What lies between, and is the same for every gate, stands here: which draw answers which want, when
a round is complete, what happens to a sample that could not be measured. So a gate sees complete
rounds of measurements only, and cannot depend on the order in which they came.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_skillopt.gate.draws import SCREEN, TAPE, Draws, Round, Want
from pytest_skillopt.gate.gaps import (
    Unmeasured,
    check_errors,
    replacements,
    settle_errors,
    settle_skips,
)
from pytest_skillopt.gate.gate_options import GateOptions, GateTask
from pytest_skillopt.gate.metric import Metric
from pytest_skillopt.gate.tallies import Tallies
from pytest_skillopt.gate.verdict import CANDIDATE, INCUMBENT, Verdict
from pytest_skillopt.gate.wording import named

if TYPE_CHECKING:
    from pytest_skillopt.gate.verdict import Arm, Decision, Draw, Sample

Plan = Generator[Round, None, Verdict]


class Settled(Exception):
    """Raised from anywhere within a plan: the decision ends here, with this verdict."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


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
    final = False
    """Whether it is the final comparison."""

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
        # In one order always, so that the caller's order is without effect.
        names = sorted(task.id for task in tasks)
        self.tallies = Tallies(names, self.metric)
        self.must_pass = frozenset(task.id for task in tasks if task.must_pass)
        self.old_tape = dict(tape or {})
        self.streams: dict[Arm, str] = {INCUMBENT: TAPE, CANDIDATE: SCREEN}
        """Where further samples of an arm come from, unless a step says otherwise."""
        self.decision = decision if decision is not None else decisions_before + 1
        _check_tasks(names, self.old_tape)

        self._draws = Draws()
        self._outlook: Iterable[Want] = ()
        self._plan = self.decide()
        self._verdict: Verdict | None = None

    def decide(self) -> Plan:
        """Yield the rounds that the decision needs, return the verdict."""
        raise NotImplementedError

    # The protocol.

    def ask(self) -> tuple[Draw, ...] | Verdict:
        """The draws that are needed now, all independent of each other, or the verdict."""
        if self._verdict is None and not self._draws.pending:
            self._resume()
        return self._verdict if self._verdict is not None else self._draws.pending

    def tell(self, samples: Iterable[Sample]) -> None:
        """Answer draws of the current batch, in any order and in any portions.

        Raises:
            ValueError: a sample that was not asked for, that contradicts one told before, or whose
                score is not a number in [0, 1].
        """
        for sample in samples:
            if sample.passed is not None:
                self.metric.value(sample)
            self._draws.note(sample)
        if self._draws.answered:
            self._close_batch()

    def likely(self, limit: int) -> tuple[Draw, ...]:
        """Up to ``limit`` draws that will probably be asked for after the current batch."""
        return self._draws.ahead(self._outlook, limit)

    def tape(self, arm: Arm) -> dict[str, int]:
        """How many samples of the stream ``tape`` have been drawn of the arm that goes on."""
        return self._draws.tape(arm, self.tallies.all_tasks)

    # What gates are written with.

    @property
    def tasks(self) -> list[str]:
        """Those that count, in order: all but the ones that were skipped or left out."""
        return self.tallies.tasks

    def wants(self, arm: Arm, tasks: Iterable[str], stream: str | None = None) -> list[Want]:
        """One more sample each."""
        stream = stream or self.streams[arm]
        return [Want(arm, task, stream) for task in tasks]

    def again(self, tasks: Sequence[str], stream: str | None = None) -> list[Want]:
        """One more sample of both arms each, where the incumbent has not had enough of them.

        Args:
            stream: the candidate's, where it is not the usual one.
        """
        thin = [task for task in tasks if self.tallies[INCUMBENT, task].n < self.options.kmax]
        return self.wants(CANDIDATE, tasks, stream) + self.wants(INCUMBENT, thin)

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
            down = {task: self.tallies.down(task) for task in tasks}
            if broken := [task for task in bars if down[task] >= bars[task]]:
                return broken
            suspects = self.unfinished(task for task in tasks if down[task] >= least)
            if not suspects:
                return []
            suspects.sort(key=lambda task: -down[task])
            yield Round(self.again(suspects), self.again(suspects) * 2)

    def unfinished(self, tasks: Iterable[str]) -> list[str]:
        """Those of which the candidate may still be sampled in this decision."""
        return [t for t in tasks if self.tallies[CANDIDATE, t].n < self.options.kmax]

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
        before, after = (
            self.tallies.mean(arm) if self.tallies.covers(arm) else None
            for arm in (INCUMBENT, CANDIDATE)
        )
        if left_out := self.tallies.left_out:
            reason += (
                f"; left out: {named(left_out)}, with nothing but infrastructure errors under both"
            )
        return Verdict(
            decision=decision,
            reason=reason,
            gate=self.name,
            final=self.final,
            metric=self.metric.name,
            before=before,
            after=after,
            tasks=self.tallies.evidence(),
            e_value=None if log_e is None else math.exp(min(log_e, 700.0)),
            alpha=self.alpha,
            missing=missing,
            incumbent_samples=self.tallies.samples(INCUMBENT),
            candidate_samples=self.tallies.samples(CANDIDATE),
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
            self._draws.open(following.wants)

    def _close_batch(self) -> None:
        """Count a complete batch, then fill its gaps or go on."""
        batch = self._draws.close()
        missing = [sample.draw for sample in batch if not self.tallies.count(sample)]
        try:
            limit = self.options.max_error_rate
            repeats = replacements(missing, self.tallies)
            probes = settle_errors(self.tallies, self.must_pass, limit)
            check_errors(self.tallies, self._draws.total, limit)
            for arm, task in [*probes, *settle_skips(self.tallies)]:
                repeats += self.wants(arm, [task])
        except Unmeasured as gap:
            self._give_up(gap)
            return
        if repeats:
            self._draws.open(repeats)
        else:
            self._resume()

    def _give_up(self, gap: Unmeasured) -> None:
        self._plan.close()
        self._verdict = self.verdict("unmeasured", gap.reason, missing=gap.missing)


def _check_tasks(tasks: Sequence[str], tape: Mapping[str, int]) -> None:
    if len(set(tasks)) < len(tasks):
        twice = next(task for task, count in Counter(tasks).items() if count > 1)
        raise ValueError(f"the task {twice} is in the suite twice")
    if unknown := sorted(set(tape) - set(tasks)):
        raise ValueError(f"the tape holds samples of {named(unknown)}, not in the suite")
