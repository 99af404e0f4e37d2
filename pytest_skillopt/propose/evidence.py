"""The rule that a proposal must pass, recomputed from nothing but counts."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from pytest_skillopt.propose.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.propose.manifest import TaskCounts


@dataclass(frozen=True, slots=True)
class PassRates:
    """Suite pass rates in [0, 1], exact: means over the tasks of passed / measured."""

    before: Fraction
    after: Fraction
    tasks: int
    samples: int
    """Measured rollouts of both arms together."""

    @property
    def improved(self) -> bool:
        """Strictly: a tie is no improvement."""
        return self.after > self.before


def pass_rates(counts: Sequence[TaskCounts]) -> PassRates:
    """Pass rates of both arms over one and the same set of tasks.

    Raises:
        Refused: no task, a task twice, an arm without a sample, more passes than samples.
    """
    if not counts:
        raise Refused("the evidence names no task")
    seen: set[str] = set()
    for row in counts:
        if row.task in seen:
            raise Refused(f"the evidence names {row.task} twice")
        seen.add(row.task)
        if not (row.before_n and row.after_n):
            raise Refused(f"the evidence has no sample of {row.task} under one of the two versions")
        if row.before_passed > row.before_n or row.after_passed > row.after_n:
            raise Refused(f"the evidence of {row.task} counts more passes than samples")
    total = len(counts)
    return PassRates(
        before=sum((Fraction(r.before_passed, r.before_n) for r in counts), Fraction(0)) / total,
        after=sum((Fraction(r.after_passed, r.after_n) for r in counts), Fraction(0)) / total,
        tasks=total,
        samples=sum(r.before_n + r.after_n for r in counts),
    )
