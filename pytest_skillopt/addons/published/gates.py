"""Published gates: stricter forms of the rule that the mean must rise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.gate.counts import by_chance
from pytest_skillopt.gate.data import CANDIDATE, INCUMBENT
from pytest_skillopt.gate.gates import StrictGate
from pytest_skillopt.gate.statistics import exact_test

if TYPE_CHECKING:
    from pytest_skillopt.gate.engine import SequentialGate


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


PUBLISHED: dict[str, type[SequentialGate]] = {
    "confirm": ConfirmGate,
    "margin": MarginGate,
    "paired": PairedGate,
}
"""Gates by name."""
