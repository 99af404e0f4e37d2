"""Published gates: stricter forms of the rule that the mean must rise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from pytest_skillopt.gate.counts import by_chance
from pytest_skillopt.gate.data import CANDIDATE, INCUMBENT, TAPE
from pytest_skillopt.gate.gates import StrictGate
from pytest_skillopt.gate.staged import StagedGate
from pytest_skillopt.gate.statistics import exact_test

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pytest_skillopt.gate.engine import SequentialGate, Wants


class ConfirmGate(StrictGate):
    """Gate that requires a rise of the mean twice, the second time on new samples."""

    name = "confirm"
    confirmations = 2


class MarginGate(StrictGate):
    """Gate that requires a rise of the mean by more than a fixed margin."""

    name = "margin"

    def wins(self) -> bool:
        gain = self.counts.mean(CANDIDATE) - self.counts.mean(INCUMBENT)
        return self.counts.improves() and gain > self.options.margin + 1e-12

    def shortfall(self) -> str:
        return f"the suite's mean did not rise by more than {100 * self.options.margin:g} points"


class PairedGate(StrictGate):
    """Gate that requires a significant rise of the mean, by an exact stratified test."""

    name = "paired"

    def wins(self) -> bool:
        return self.counts.improves() and self._p_value() <= self.alpha

    def shortfall(self) -> str:
        return f"the gain may be chance ({by_chance(self._p_value(), self.alpha)})"

    def _p_value(self) -> float:
        return exact_test(self.counts.strata(self.tasks))


class BroadGate(StagedGate):
    """Staged, with a second test for gains that are spread thinly over many tasks.

    Where no single task stands out, complete rounds are compared by a group-sequential exact test,
    for about three times the samples. Each test has half of alpha. The first rounds of both tapes
    are compared, which no luck has selected: what the screen saw decides only whether the test is
    run, and that can only make accepting rarer.
    """

    name = "staged, broad"
    alpha_of_tasks = 0.5
    looks: ClassVar = {2: 0.3, 4: 0.3, 8: 0.4}
    """Rounds after which the test is looked at, and the share of its alpha spent there."""
    futility = 0.3
    """Standard errors of the difference below which the test stops."""

    def seek_improvement(self) -> Generator[Wants, None, bool]:
        found = yield from super().seek_improvement()
        tried = [task for task in self.tasks if self.counts[CANDIDATE, task].n]
        if found or self.counts.gain(tried) < 0:
            return found
        last = max(self.looks)
        yield self.up_to(INCUMBENT, last)
        for rounds in range(1, last + 1):
            wants = self.wants(CANDIDATE, self.tasks, TAPE)
            yield wants
            strata = [self._stratum(task, rounds, last) for task in self.tasks]
            if exact_test(strata) <= self.looks.get(rounds, 0.0) * self.alpha / 2:
                return True
            if _standard_errors(strata) < self.futility:
                return False
        return False

    def _stratum(self, task: str, new: int, old: int) -> tuple[int, int, int, int]:
        passed = sum(self.counts[CANDIDATE, task].rounds[:new])
        return passed, new, sum(self.counts[INCUMBENT, task].rounds[:old]), old


def _standard_errors(strata: Sequence[tuple[int, int, int, int]]) -> float:
    """Return the difference of the two suite means, in standard errors."""
    gain, variance = 0.0, 0.0
    for passed, n, other_passed, other_n in strata:
        rate = (passed + other_passed + 0.5) / (n + other_n + 1)
        gain += passed / n - other_passed / other_n
        variance += rate * (1 - rate) * (1 / n + 1 / other_n)
    return gain / math.sqrt(variance)


PUBLISHED: dict[str, type[SequentialGate]] = {
    "confirm": ConfirmGate,
    "margin": MarginGate,
    "paired": PairedGate,
    "staged, broad": BroadGate,
}
"""Gates by name."""
