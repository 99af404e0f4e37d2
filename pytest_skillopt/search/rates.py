"""What few samples say of an edit: how much likelier they are if it lifts its task.

A task that failed twice may fail always or half of the time. Which of the two is likelier shows in
the suite as a whole, so the tasks share what is known of their pass rates (partial pooling, by
empirical Bayes: Efron 2010, *Large-Scale Inference*). Nothing here carries a guarantee; what is
found is tested again before anything rests on it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_RATES = (0.03, 0.12, 0.25, 0.4, 0.55, 0.7, 0.85, 0.97)
"""Pass rates that a task may have."""
_LEAST_LIFT = 0.3
"""Smallest rise of a pass rate that an edit is taken to cause."""
_SHARED = 8.0
"""Weight of the prior, in tasks, under which every rate is equally likely."""
_STEPS = 20


class TaskRates:
    """How common each pass rate is among the tasks of a suite, under the skill as it was."""

    def __init__(self) -> None:
        self._common = [1 / len(_RATES)] * len(_RATES)

    def learn(self, counts: Iterable[tuple[int, int]]) -> None:
        """Estimate anew from passes and samples of each task (by expectation maximisation)."""
        likely = [[_likelihood(rate, x, n) for rate in _RATES] for x, n in counts if n]
        for _ in range(_STEPS if likely else 0):
            sums = [_SHARED / len(_RATES)] * len(_RATES)
            for row in likely:
                joint = [weight * value for weight, value in zip(self._common, row, strict=True)]
                total = sum(joint)
                sums = [s + value / total for s, value in zip(sums, joint, strict=True)]
            self._common = [s / sum(sums) for s in sums]

    def log_factor(self, passed: float, n: int, before: int, before_n: int) -> float:
        """Log Bayes factor of "the edit lifts the task" against "it does nothing".

        Args:
            passed: passes with the edit, of ``n``; a failure further on counts a part of one.
            before: passes without it, of ``before_n``.
        """
        if not n:
            return 0.0
        lifted = alike = 0.0
        for weight, rate in zip(self._common, _RATES, strict=True):
            known = weight * _likelihood(rate, before, before_n)
            alike += known * _likelihood(rate, passed, n)
            rises = [(new - rate, new) for new in _RATES if new - rate >= _LEAST_LIFT - 1e-9]
            total = sum(rise for rise, _ in rises)
            lifted += known * sum(rise / total * _likelihood(new, passed, n) for rise, new in rises)
        return math.log(lifted / alike) if lifted else -math.inf


def _likelihood(rate: float, passed: float, n: int) -> float:
    return float(rate**passed * (1 - rate) ** (n - passed))
