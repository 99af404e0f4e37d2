"""The rule that tells whether a skill still helps, is no longer needed, or hurts.

The incumbent is the agent without the skill, the candidate the agent with it. With ``w`` and ``n``
the suite's pass rates with and without the skill, each look tests three null hypotheses:

* *still helps* rejects ``w <= n``, and *hurts* rejects ``w >= n``, by the exact stratified test of
  ``--skillopt-check``;
* *no longer needed* rejects ``w - n >= (w' - n') / 2``, in which ``w'`` and ``n'`` are the rates of
  an earlier model that the skill helped. Its one-sided bound combines the Wilson intervals of the
  four rates (MOVER; Zou, Huang, Zhang 2009, Computational Statistics & Data Analysis 53).

*Still helps* is tested at ``alpha / 2``, as a loss is by ``--skillopt-check``, and both alarms at
``alpha / 10`` each, because a monthly job has many chances of a false one; all in equal parts at
each look. So a false alarm has at most the probability ``alpha / 5``, 1 % by default; for *no
longer needed* that is approximate, as its intervals are, and measured by ``benchmarks/drift.py``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from pytest_skillopt.gate.engine import SequentialGate
from pytest_skillopt.gate.statistics import exact_test, interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_skillopt.gate.data import Decision
    from pytest_skillopt.gate.engine import Plan

Word = Literal["still helps", "no longer needed", "hurts", "cannot tell"]
Counts = tuple[int, int, int, int]
"""One task: passed and n with the skill, passed and n without it."""

SHARE = 0.5
"""Share of its earlier gain that a skill may lose before it can be called no longer needed."""
_DECISIONS: dict[Word, Decision] = {"still helps": "accepted", "cannot tell": "unmeasured"}


class DriftGate(SequentialGate):
    """Sample both arms alike, ``most`` rounds a look, until one of the verdicts is credible.

    Args:
        then: counts of the earlier model by task; without those of every task that counts,
            *no longer needed* is never said.
    """

    name = "drift"
    looks = 2

    def __init__(self, *args: Any, then: Mapping[str, Counts] = {}, **options: Any) -> None:
        super().__init__(*args, **options)
        self.then = then
        self.word: Word | None = None
        """The verdict; None as long as the samples are not complete."""

    def decide(self) -> Plan:
        self.sample_from("drift")
        for _ in range(self.looks):
            yield self.whole_rounds(self.options.most)
            word, why = self._look(self.alpha / self.looks)
            if word != "cannot tell":
                break
        self.word = word
        decision = _DECISIONS.get(word, "rejected")
        return self.verdict(decision, f"{word}: without and with it {self.counts.moved()}, {why}")

    def _look(self, alpha: float) -> tuple[Word, str]:
        now = self.counts.strata(self.tasks)
        worse = exact_test([(*counts[2:], *counts[:2]) for counts in now])
        better = exact_test(now)
        if worse <= alpha / 10:
            return "hurts", f"by chance with probability {worse:.2g}"
        if better <= alpha / 2:
            return "still helps", f"by chance with probability {better:.2g}"
        if not all(task in self.then for task in self.tasks):
            return "cannot tell", "and no earlier model was helped on the same tasks"
        then = [self.then[task] for task in self.tasks]
        most = highest_left(now, then, alpha / 10)
        if most < 0:
            return "no longer needed", f"credibly less than half of the {_points(then)} of before"
        return "cannot tell", f"after {_points(then)} before: more tasks would tell"


def gain(counts: Sequence[Counts]) -> float:
    """Return the mean over tasks of the pass rate with the skill minus that without, in [-1, 1]."""
    return math.fsum(a / n - b / m for a, n, b, m in counts) / len(counts)


def _points(counts: Sequence[Counts]) -> str:
    return f"{100 * gain(counts):+.1f} points"


def highest_left(now: Sequence[Counts], then: Sequence[Counts], level: float) -> float:
    """Bound ``gain(now) - SHARE * gain(then)`` from above, one-sided at ``level`` in (0, 0.5)."""
    slack = 0.0
    for weight, counts in ((1.0, now), (-SHARE, then)):
        for sign, arm in ((1, [row[:2] for row in counts]), (-1, [row[2:] for row in counts])):
            rate = math.fsum(passed / n for passed, n in arm) / len(arm)
            low, high = interval(arm, 1 - 2 * level)
            slack += (weight * ((high if weight * sign > 0 else low) - rate)) ** 2
    return gain(now) - SHARE * gain(then) + math.sqrt(slack)
