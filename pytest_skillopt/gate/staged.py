"""The staged gate: does a candidate really improve the suite, or was it luck?

"Accept only if the pass rate strictly improves" is a coin toss with noisy rollouts: an edit that
changes nothing looks better nearly half of the time, with any number of samples. The staged gate
keeps that rule as its last condition and puts two others before it:

1. evidence: it is credible that some task improved, whatever the pass rates are;
2. guard: it is not credible that any task got worse;
3. the literal rule: the observed suite mean is strictly greater.

An edit to a skill changes a few tasks a lot, so the evidence is cheap: try once every task that the
incumbent fails, then spend samples only on those that look turned. An edit that changes nothing is
found out after about one sample a task. ``docs/gate.md`` has the figures, ``benchmarks/gate.py``
measures them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_skillopt.gate.counts import change_of, counted, named, plainly
from pytest_skillopt.gate.data import CANDIDATE, INCUMBENT
from pytest_skillopt.gate.draws import TAPE, Round
from pytest_skillopt.gate.engine import Decided, SequentialGate
from pytest_skillopt.gate.statistics import log_e, suite_log_e

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pytest_skillopt.gate.data import Decision, Verdict
    from pytest_skillopt.gate.draws import Want
    from pytest_skillopt.gate.engine import Plan


class StagedGate(SequentialGate):
    """Screen, focus, confirm.

    The incumbent's samples are a *tape* which every candidate is measured against; it is extended
    where a decision needs more of it. A candidate's screen and focus samples are selected by their
    luck and are never kept; its confirmation rounds are drawn from its own stream ``tape``, so that
    after an acceptance they are the new incumbent's tape without anything being moved.

    Whatever the pass rates, the noise and the suite: an edit that changes nothing is accepted with
    probability at most ``alpha``; one that makes no task worse is blocked by the guard with
    probability at most ``guard``.
    """

    name = "staged"
    _highest = -math.inf

    def decide(self) -> Plan:
        yield from self.lay_tape(self.options.k0)
        found = yield from self.seek_improvement()
        if not found:
            return self._reject_for_lack_of_evidence()
        for rounds in (1, self.options.kc):
            yield from self.complete(rounds)
            yield from self.watch_over_the_rest()
        yield from self.look_again()
        return self.apply_literal_rule()

    def lay_tape(self, length: int) -> Generator[Round, None, None]:
        """All there is of the incumbent's tape, and at least ``length`` samples of every task."""
        wants: list[Want] = []
        for task in self.tasks:
            short = max(self.old_tape.get(task, 0), length) - self.counts[INCUMBENT, task].n
            wants += self.wants(INCUMBENT, [task]) * short
        if wants:
            yield Round(wants, self.wants(CANDIDATE, self.tasks))

    def seek_improvement(self) -> Generator[Round, None, bool]:
        """Sample what looks improved, until the evidence is there or nothing promising is left."""
        screened: list[str] = []
        if self.evidence() < self.bar:
            screened = [task for task in self.tasks if self._worth_a_try(task)]
        if screened:
            yield Round(self.wants(CANDIDATE, screened), self._if_it_goes_on(screened))
        while self.evidence() < self.bar:
            promising = self.promising(screened)
            if not promising:
                return False
            yield Round(self.again(promising), self._if_it_goes_on(promising))
        return True

    def evidence(self) -> float:
        """Log e-value that the candidate improves some task: the highest it has been.

        That it has ever been beyond the bar is what Ville's inequality bounds.
        """
        log_es = (self.sought(task) for task in self.tasks)
        now = suite_log_e(log_es, len(self.tasks)) + math.log(self.options.prior)
        self._highest = max(self._highest, now)
        return self._highest

    def sought(self, task: str) -> float:
        """Log e-value of the change that is looked for in a task."""
        return self.counts.up(task)

    @property
    def bar(self) -> float:
        """Where the evidence suffices: chance reaches ``1 / alpha`` with probability alpha."""
        return -math.log(self.alpha)

    def _worth_a_try(self, task: str) -> bool:
        """Whether one pass of the candidate could make the task look improved."""
        old = self.counts[INCUMBENT, task]
        return log_e(1, 1, old.total, old.n) >= math.log(self.options.focus)

    def promising(self, screened: Sequence[str]) -> list[str]:
        """Tasks that still look improved, the most promising first."""
        log_es = {task: self.sought(task) for task in screened}
        least = math.log(self.options.focus)
        promising = self.unfinished(task for task in screened if log_es[task] >= least)
        return sorted(promising, key=lambda task: -log_es[task])

    def _if_it_goes_on(self, tasks: Sequence[str]) -> list[Want]:
        """What follows if the tasks go on looking as they do: more of them, then all the others."""
        return self.again(tasks) + self.wants(CANDIDATE, self.tasks, TAPE)

    def complete(self, rounds: int) -> Generator[Round, None, None]:
        """Bring every task to so many samples of the candidate, the new ones from its own tape."""
        wants: list[Want] = []
        for task in self.tasks:
            short = rounds - self.counts[CANDIDATE, task].n
            wants += self.wants(CANDIDATE, [task], TAPE) * short
        if wants:
            yield Round(wants, self.wants(CANDIDATE, self.tasks, TAPE))

    def watch_over_the_rest(self) -> Generator[Round, None, None]:
        """Sample what looks broken until it no longer does; end the decision when it is.

        Also where nothing may block: the luck of the promising tasks has been sampled away, and
        leaving the bad luck of the others would make the literal rule refuse good edits.
        """
        broken = yield from self.sample_suspects(self.tasks, self.guard_bars(self.guarded()))
        if broken:
            raise Decided(self.judge("rejected", f"broken: {self.counts.compared(broken)}"))

    def guarded(self) -> list[str]:
        """The tasks that block when they credibly got worse."""
        return self.tasks

    def look_again(self) -> Generator[Round, None, None]:
        """While the mean has not risen, more rounds of both arms, as many again at most.

        Some task did improve, so that it has not risen is likely the noise of the others. The bound
        on accepting an edit that changes nothing is the evidence's, and stands.
        """
        for _ in range(self.options.kc):
            if self.counts.improves():
                return
            more = self.again(self.tasks, TAPE)
            yield Round(more, more)
            yield from self.watch_over_the_rest()

    def apply_literal_rule(self) -> Verdict:
        moved = change_of(self.counts.mean(INCUMBENT), self.counts.mean(CANDIDATE))
        if not self.counts.improves():
            return self.judge(
                "rejected",
                f"some task improved, but the suite's mean did not strictly rise: {moved}",
            )
        fixed = self.counts.fixed()
        gains = f", {counted(len(fixed), 'task')} fixed ({named(fixed)})" if fixed else ""
        return self.judge(
            "accepted",
            f"the suite's mean rose from {moved}{gains}, and no task credibly broke: "
            f"evidence {plainly(self.evidence())} where {plainly(self.bar)} is needed",
        )

    def judge(self, decision: Decision, reason: str) -> Verdict:
        return self.verdict(decision, reason, log_e=self.evidence())

    def _reject_for_lack_of_evidence(self) -> Verdict:
        return self.judge(
            "rejected",
            "no task credibly improved: "
            f"evidence {plainly(self.evidence())} where {plainly(self.bar)} is needed",
        )
