"""The gate for shorter skills: a test of non-inferiority."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

from pytest_skillopt.gate.engine import SequentialGate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.gate.engine import Plan

MARGIN = 0.05
"""Largest fall of the suite's pass rate that counts as not worse, in (0, 1)."""
_SUSPECT = 1.5
"""E-value from which a task looks broken enough to be sampled again."""
_RECOMPUTED = 0.05
"""Significance level of the test if it is made again from the counts of a result."""
LOOKS = 4
"""Number of times that the samples are tested."""


def non_inferior(strata: Sequence[tuple[int, int, int, int]], margin: float = MARGIN) -> float:
    """Return the one-sided p-value of "the first arm's mean is lower by ``margin`` or more".

    The normal test of Blackwelder (Controlled Clinical Trials 3, 1982, "Proving the null
    hypothesis") with tasks as strata of equal weight. So that a task that always passed has a
    positive variance, one pass and one failure are added as by Agresti and Caffo (The American
    Statistician 54, 2000): to each task, or to all samples pooled. The smaller variance is used;
    both are at least the variance of the mean, the second because tasks differ.

    Args:
        strata: passed and n of the first arm, passed and n of the second arm, for each task; n > 0.
        margin: fall of the mean that counts as worse, in (0, 1).
    """
    new = [(passed, n) for passed, n, _, _ in strata]
    old = [(passed, n) for _, _, passed, n in strata]
    moved = math.fsum(passed / n for passed, n in new) - math.fsum(passed / n for passed, n in old)
    deviation = math.sqrt(_variance(new) + _variance(old))
    return NormalDist().cdf(-(moved + margin * len(strata)) / deviation)


def not_shown(counts: Sequence[tuple[int, int, int, int]]) -> str:
    """Return the reason for which counts do not show that a skill is no worse; else ""."""
    if (p_value := non_inferior(counts)) <= _RECOMPUTED:
        return ""
    said = _worse_by_margin(p_value, _RECOMPUTED)
    return f"the counts do not show that the shorter skill is no worse {said}"


def _worse_by_margin(p_value: float, level: float) -> str:
    """Describe the test without statistical terms: its p-value and the allowed level."""
    return (
        f"(a skill that is worse by so much would seem as good with probability {p_value:.2g}; "
        f"at most {level:.2g} is allowed)"
    )


def _variance(counts: Sequence[tuple[int, int]]) -> float:
    """Return the variance of the sum of the rates."""
    apart = math.fsum(_spread(passed / n, n) / n for passed, n in counts)
    mean = math.fsum(passed / n for passed, n in counts) / len(counts)
    samples = sum(n for _, n in counts)
    return min(apart, _spread(mean, samples) * math.fsum(1 / n for _, n in counts))


def _spread(rate: float, n: int) -> float:
    """Return the variance of one sample, with one pass and one failure added."""
    rate = (rate * n + 1) / (n + 2)
    return rate * (1 - rate)


class ShorterGate(SequentialGate):
    """Accept a shorter candidate if it is credibly not worse by ``MARGIN`` or more.

    Both arms get complete rounds of fresh samples, and after each the test is made at level
    ``alpha / LOOKS``. No task may credibly break; a task that must pass, or either side of the
    trigger tasks, may not pass less often at all. The candidate is rejected if it looks worse by
    the margin, or if the samples are used up.
    """

    name = "shorten"

    def decide(self) -> Plan:
        self.final = self.options.final
        self.sample_from("final" if self.final else self.name)
        level = self.alpha / LOOKS
        p_value = 1.0
        for _ in range(LOOKS):
            size = 2 * len(self.tasks)
            rounds = self.affordable(size * max(1, self.options.rollouts)) // size
            if not rounds:
                break
            yield self.whole_rounds(rounds)
            gains = {task: self.counts.gain([task]) for task in self.tasks}
            if fallen := [t for t in self.tasks if t in self.must_pass and gains[t] < 0]:
                return self.verdict("rejected", f"must pass: {self.counts.compared(fallen)}")
            if worse_off := self.fallen_side():
                return self.verdict("rejected", worse_off)
            p_value = non_inferior(self.counts.strata(self.tasks))
            if p_value <= level:
                yield from self.follow_suspects(self.tasks, _SUSPECT)
                if broken := self.counts.broken():
                    return self.verdict("rejected", self.refuse_for(broken))
                return self.verdict(
                    "accepted",
                    f"no worse by {100 * MARGIN:g} points or more {self._shown(p_value)}",
                )
            if -sum(gains.values()) >= MARGIN * len(self.tasks):
                break
        return self.verdict(
            "rejected",
            f"not shown to be no worse by {100 * MARGIN:g} points {self._shown(p_value)}",
        )

    def _shown(self, p_value: float) -> str:
        return _worse_by_margin(p_value, self.alpha / LOOKS)
