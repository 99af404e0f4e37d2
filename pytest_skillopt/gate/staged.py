"""The staged gate: does a candidate really improve the suite, or was it luck?

"Accept only if the pass rate strictly improves" is a coin toss with noisy rollouts: an edit that
changes nothing looks better nearly half of the time, with any number of samples. The staged gate
keeps that rule as its last condition and puts two others before it:

1. evidence: it is credible that some task improved, whatever the pass rates are;
2. the net effect: what got worse is credibly outweighed, and nothing broke that must
   pass;
3. the literal rule: the observed suite mean is strictly greater.

An edit to a skill changes a few tasks a lot, so the evidence is cheap: try once every task that the
incumbent fails, then spend samples only on those that look turned. An edit that changes nothing is
found out after about one sample a task. ``docs/gate.md`` has the figures, ``benchmarks/gate.py``
measures them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_skillopt.gate.counts import counted, named
from pytest_skillopt.gate.data import CANDIDATE, INCUMBENT, TAPE
from pytest_skillopt.gate.engine import SequentialGate, Want, Wants
from pytest_skillopt.gate.statistics import log_e

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_skillopt.gate.data import Arm, Decision, Verdict
    from pytest_skillopt.gate.engine import Plan


class StagedGate(SequentialGate):
    """Screen, focus, confirm, weigh.

    The incumbent's samples are a *tape* which every candidate is measured against; it is extended
    where a decision needs more of it. A candidate's screen and focus samples are selected by their
    luck and are never kept; its confirmation rounds are drawn from its own stream ``tape``, so that
    after an acceptance they are the new incumbent's tape without anything being moved.

    Whatever the pass rates, the noise and the suite: an edit that changes nothing is accepted with
    probability at most ``alpha``; one that makes no task worse is refused for a broken task with
    probability at most ``guard``.
    """

    name = "staged"

    def decide(self) -> Plan:
        yield self.up_to(INCUMBENT, self.options.k0)
        found = yield from self.seek_improvement()
        if not found:
            return self.judge("rejected", f"no task credibly improved: {self.compared_evidence()}")
        for rounds in (1, self.options.kc):
            yield self.up_to(CANDIDATE, rounds)
            broken = yield from self.follow_suspects(self.tasks, self.options.focus)
            if broken:
                return self.judge("rejected", self.refuse_for(broken))
        good = yield from self.weigh(TAPE)
        if good:
            yield from self.look_again()
        return self.apply_rules(good)

    def up_to(self, arm: Arm, length: int) -> list[Want]:
        """What every task lacks of so many samples, from the arm's tape.

        Of the incumbent's tape all that there is, also where that is more.
        """
        laid = self.old_tape if arm == INCUMBENT else {}
        return [
            Want(arm, task, TAPE)
            for task in self.tasks
            for _ in range(self.counts[arm, task].n, max(laid.get(task, 0), length))
        ]

    def seek_improvement(self) -> Generator[Wants, None, bool]:
        """Sample what looks improved, until the evidence is there or nothing promising is left."""
        screened: list[str] = []
        if self.evidence() < self.bar:
            screened = [task for task in self.tasks if self._worth_a_try(task)]
        yield self.wants(CANDIDATE, screened)
        return (yield from self.follow_promising(screened))

    def _worth_a_try(self, task: str) -> bool:
        """Whether one pass of the candidate could make the task look improved."""
        old = self.counts[INCUMBENT, task]
        return log_e(1, 1, old.total, old.n) >= math.log(self.options.focus)

    def look_again(self) -> Generator[Wants, None, None]:
        """While the mean has not risen, more rounds of both arms, as many again at most.

        Some task did improve, so that it has not risen is likely the noise of the others. The bound
        on accepting an edit that changes nothing is the evidence's, and stands.
        """
        for _ in range(self.options.kc):
            if self.counts.improves():
                return
            yield self.again(self.tasks, TAPE)

    def apply_rules(self, good: bool) -> Verdict:
        """The verdict on an edit that improves some task, ``good`` being its net effect."""
        breaks = self.named_breaks()
        moved = self.counts.moved()
        if not (good and self.counts.improves()):
            why = (
                f"the suite's mean did not strictly rise: {moved}"
                if good
                else f"on balance it is not credible that the suite did: {self.balance()}, {moved}"
            )
            return self.judge("rejected", f"{breaks}some task improved, but {why}")
        fixed = self.counts.fixed()
        gains = f", {counted(len(fixed), 'task')} fixed ({named(fixed)})" if fixed else ""
        safe = f"net effect {self.balance()}" if breaks else "no task credibly broke"
        won = f"the suite's mean rose from {moved}{gains}, {safe}"
        return self.judge("accepted", f"{breaks}{won}: {self.compared_evidence()}")

    def judge(self, decision: Decision, reason: str) -> Verdict:
        return self.verdict(decision, reason, log_e=self.evidence())
