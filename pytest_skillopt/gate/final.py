"""The final comparison: what the search ended with against the skill on disk, on fresh samples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_skillopt.gate.counts import by_chance
from pytest_skillopt.gate.data import CANDIDATE, INCUMBENT
from pytest_skillopt.gate.engine import NOTHING, SequentialGate, Unmeasured, Wants
from pytest_skillopt.gate.statistics import exact_test

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pytest_skillopt.gate.data import Verdict
    from pytest_skillopt.gate.engine import Plan

_PORTIONS = 16
"""Parts of the suite that the incumbent is sampled in, to stop soon after the rule is settled."""
_SUSPECT = 1.5
"""E-value from which a task looks broken enough to be sampled again."""


class FinalGate(SequentialGate):
    """The last word before a skill is written, on all train and val tasks.

    Whatever the search ended with had been the best of several tries on the samples that chose it;
    these have chosen nothing: their stream belongs to this comparison alone. It is accepted where

    1. the suite's mean strictly rises;
    2. nothing broke that must pass, and what else credibly broke is credibly outweighed;
    3. of the trigger tasks neither those that should ask for the skill nor those that should not
       have a lower mean;
    4. with ``alone``, where nothing has passed a gate before: the gain is not chance, and the mean
       of the tasks held out from the search strictly rises too.

    For 4 there is an exact test of passes, tasks being strata, at ``alpha`` times ``prior``:
    ``P(p <= alpha E) <= alpha E[E] <= alpha`` for an e-value ``E`` of earlier samples. With whole
    rounds it has half of alpha; the other half is for the evidence that single tasks improved,
    which sees a few tasks turned where the test sees noise.

    With ``rollouts`` at 0 it is the verdict of one complete round for less than one: the incumbent
    is sampled on one part of the suite after the other until the rest can no longer change it.
    Where it is certain that the rest cannot save what the suite's mean would not refuse, the tasks
    held out are sampled once more, as far as ``budget`` reaches. Where that ends before the verdict
    is certain, the rest counts as passing under the incumbent; with ``alone``, where the order of
    the tasks is not that of their failures, they are not compared.
    """

    name = "final"
    final = True
    alpha_of_tasks = 0.5
    _unmet: frozenset[str] = frozenset()
    """Tasks that the budget left without a sample of the incumbent when the rule was applied."""

    def decide(self) -> Plan:
        self.sample_from(self.name)
        if self.options.rollouts:
            yield self.whole_rounds(self.options.rollouts)
        else:
            yield from self._sample_until_certain()
        if self.options.held_out and not self._held_out:
            raise Unmeasured(
                "no val task could be measured, and a gain on those that the search has seen alone "
                "is none"
            )
        # Said before some tasks are sampled more often than others.
        moved, why, by_task = self._moved(self.tasks), "", False
        if self._shortfall(missing=1):
            by_task = yield from self._seek_improvement()
            if not by_task:
                return self._reject_for_rule()
            why = f", some tasks more than chance explains ({self.compared_evidence()})"
        elif self.options.alone:
            why = f", more than chance explains ({self._tested(missing=1)})"
        yield from self._meet_failures()
        broken = yield from self.follow_suspects(self.tasks, _SUSPECT)
        if broken:
            return self.verdict("rejected", self.refuse_for(broken))
        must = [task for task in self.unfinished(self.must_pass) if self.counts[INCUMBENT, task].n]
        if doubtful := [task for task in must if self.counts.down(task) >= math.log(_SUSPECT)]:
            return self.verdict(
                "rejected",
                "must pass, and the budget ended while it looked broken: "
                f"{self.counts.compared(doubtful)}",
            )
        if self._stagnant(missing=1):
            return self._reject_for_rule()
        breaks = self.named_breaks()
        if breaks or by_task:
            good = yield from self.weigh()
            if not good or self._stagnant(missing=1):
                return self.verdict(
                    "rejected",
                    f"{breaks}on balance it is not credible that the suite improved: "
                    f"{self.balance()}",
                )
        if fallen := self.fallen_side():
            return self.verdict("rejected", f"{breaks}{fallen}")
        safe = f"with a net effect of {self.balance()}" if breaks else "and no task credibly broke"
        return self.verdict("accepted", f"{breaks}the suite's mean rose {moved}{why}, {safe}")

    def _reject_for_rule(self) -> Verdict:
        shortfall = self._shortfall(missing=0)
        if not shortfall:
            shortfall = f"the budget ended before it was certain, and so far {self._shortfall(1)}"
        return self.verdict("rejected", f"{self.named_breaks()}{shortfall}")

    def _seek_improvement(self) -> Generator[Wants, None, bool]:
        """Whether single tasks show what the means do not: sampled on while they look improved."""
        if not (self.options.alone and self.options.rollouts) or self._stagnant(missing=1):
            return False
        found = yield from self.follow_promising(self.tasks)
        return found and not self._stagnant(missing=1)

    def _sample_until_certain(self) -> Generator[Wants, None, None]:
        tasks = self._in_order()
        must = [task for task in tasks if task in self.must_pass]
        yield self.wants(CANDIDATE, tasks) + self.wants(INCUMBENT, must)
        again = self.unfinished(self._held_out)
        while left := [task for task in self._in_order() if not self.counts[INCUMBENT, task].n]:
            if not self._shortfall(missing=1):
                return
            if self._shortfall(missing=0):
                again = again[: self.affordable(2 * len(again)) // 2]
                if not again or self._stagnant(missing=0) == self.tasks:
                    return
                yield self.again(again)
                again = []
                continue
            size = self.affordable(math.ceil(len(self.tasks) / _PORTIONS))
            if not size:
                if self.options.alone:
                    self._unmet = frozenset(left)
                return
            yield self.wants(INCUMBENT, left[:size])

    def _in_order(self) -> list[str]:
        """Tasks held out first, then those that the options name, then the rest."""
        first = [task for task in self.options.first if task in set(self.tasks)]
        return list(dict.fromkeys([*self._held_out, *first, *self.tasks]))

    @property
    def _held_out(self) -> list[str]:
        return [task for task in self.tasks if task in self.options.held_out]

    @property
    def _compared(self) -> list[str]:
        """The tasks that the rule is about."""
        return [task for task in self.tasks if task not in self._unmet]

    @property
    def _level(self) -> float:
        """Of the test."""
        share = 0.5 if self.options.rollouts else 1.0
        return share * self.alpha * self.options.prior

    def _shortfall(self, missing: int) -> str:
        """Which rule the candidate misses, in words, if any.

        Args:
            missing: whether the incumbent would pass (1) or fail (0) the tasks that it has not been
                sampled on.
        """
        moved = self._moved(self.tasks)
        if stagnant := self._stagnant(missing):
            if stagnant == self._compared:
                return f"the suite's mean did not strictly rise: it moved {moved}"
            return (
                "the mean of the val tasks did not strictly rise: it moved "
                f"{self._moved(stagnant)}, that of the whole suite {moved}"
            )
        if not self.options.alone or self._p_value(missing) <= min(1.0, self._level):
            return ""
        return f"the gain may be chance ({self._tested(missing)}): the suite's mean moved {moved}"

    def _tested(self, missing: int) -> str:
        """The test in words: both sides of ``p <= level`` divided by the earlier e-value."""
        prior = self.options.prior
        p_value, level = self._p_value(missing) / prior, self._level / prior
        counted = "" if prior == 1 else ", the samples of leaving edits out counted"
        return by_chance(min(1.0, p_value), level) + counted

    def _stagnant(self, missing: int) -> list[str]:
        """The tasks whose mean does not rise: all, else those held out; none where both rise."""
        for tasks in (self._compared, self._held_out):
            if tasks and self.counts.gain(tasks, missing) <= NOTHING:
                return tasks
        return []

    def _p_value(self, missing: int) -> float:
        return exact_test(self.counts.strata(self._compared, missing))

    def _moved(self, tasks: Sequence[str]) -> str:
        if all(self.counts[INCUMBENT, task].n for task in tasks):
            return f"from {self.counts.moved(tasks)}"
        least, most = self.counts.gain(tasks, 1), self.counts.gain(tasks, 0)
        return (
            f"by {least:+.3g} to {most:+.3g} of {len(tasks)} tasks (the skill before was sampled "
            "on a part of them)"
        )

    def _meet_failures(self) -> Generator[Wants, None, None]:
        """Sample the incumbent where the candidate failed and nothing is known of it."""
        unmet = [
            task
            for task in self._in_order()
            if not self.counts[INCUMBENT, task].n and not self.counts[CANDIDATE, task].passed
        ]
        yield self.wants(INCUMBENT, unmet[: self.affordable(len(unmet))])
