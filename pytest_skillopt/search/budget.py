"""The end of a search that has no rollouts left to spend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.suite.sampler import Stop, StopRun

if TYPE_CHECKING:
    from pytest_skillopt.model.purse import Purse

FINAL = "the final comparison and the test split"
ABLATION = "leaving edits out"
"""Purposes for which rollouts are reserved."""


class OutOfBudget(StopRun):
    """The search ends here, because it would spend a reserve or exceed its own limit."""

    def __init__(self, reason: str, *, capped: bool = False) -> None:
        super().__init__(reason, kind=Stop.CAP if capped else Stop.SPENT)
        self.capped = capped
        """True if a cap of the user ended it: with a higher one the run could continue."""


def require(purse: Purse, rollouts: int) -> None:
    """Raise OutOfBudget if so many more rollouts may not be taken."""
    if why := purse.refusal(rollouts):
        raise OutOfBudget(why, capped=purse.is_bound_by_cap)
