"""The bounds of the default search, and the end of a search that has no rollouts left to spend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.gate.sequential import most_samples
from pytest_skillopt.rollouts.sampler import Stop, StopRun
from pytest_skillopt.tasks.splits import without_test

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.model.purse import Purse
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.tasks.task import SkillTask

FINAL, TEST = "the final comparison", "the test split"
"""Purposes for which rollouts are reserved."""
_NARROWEST, _WIDEST = 12, 20
"""Samples of a round. With 32 rollouts at once, rounds of 32 found .43 and .68 of what random and
noisy worlds hold at 350 rollouts in 2.6 times the ideal time, rounds of 20 .61 and .80 in 3.1
(``benchmarks/learning.py``, 16 worlds each, seeds from 9300)."""
_LEAST_SAMPLES, _SAMPLES_A_TASK = 250, 34
"""Most samples without a cap: at least so many, and so many for each task."""
_LEAST_CALLS, _SAMPLES_A_CALL = 30, 5
"""Most optimizer calls: at least so many, and one for so many samples."""
OF_CALLS = 0.5
"""Largest part of what a cap leaves to a search that its optimizer calls take while there is
something to sample. At 20 times the price of a rollout, calls without this bound left too few
rollouts to tell which edits help (docs/decisions/one-posterior.md)."""
_LEAST_CALLS_AT_ONCE = 8
"""Optimizer calls that run at once, at least."""
_USUAL_SAMPLES, _USUAL_FRESH = 280, 0.25
"""Samples of a search in the middle, and the part that its verdict takes of those that it may."""
_CONFIRMED, _FEW, _MANY = 10, 0.125, 0.5
"""Winnings of a search from which few fresh samples confirm it; the part of them that a verdict
usually takes then, and else."""


def width_of(at_once: int) -> int:
    """Return the most samples of a round: whole waves of the rollouts that run at once, 12 to 20.

    ``at_once`` is their number, at least 1.
    """
    if at_once >= _WIDEST:
        return _WIDEST
    return -(-_NARROWEST // at_once) * at_once


def calls_at_once(at_once: int) -> int:
    """Return the optimizer calls that run at once beside so many rollouts."""
    return max(_LEAST_CALLS_AT_ONCE, at_once)


def calls_of(samples: float) -> int:
    """Return the most optimizer calls of a search that may take so many samples."""
    return max(_LEAST_CALLS, calls_beside(samples))


def calls_beside(samples: float) -> int:
    """Return the most optimizer calls beside so many further samples."""
    return int(samples) // _SAMPLES_A_CALL


def samples_of(tasks: int) -> int:
    """Return the most samples of a search with so many train and val tasks, without a cap."""
    return max(_LEAST_SAMPLES, _SAMPLES_A_TASK * tasks)


def usual_of(tasks: int, settings: Settings) -> float:
    """Return the rollouts of a training with so many train and val tasks, in the middle."""
    fresh = most_samples(settings.final_rollouts, tasks)
    return min(samples_of(tasks), _USUAL_SAMPLES) + _USUAL_FRESH * fresh


def usual_fresh(most: float, e_value: float) -> float:
    """Return the fresh samples that a verdict usually takes.

    Args:
        most: the number that it may take.
        e_value: what the search has won by its bets.
    """
    return most * (_FEW if e_value >= _CONFIRMED else _MANY)


def most_of_search(tasks: Sequence[SkillTask], settings: Settings) -> tuple[int, int]:
    """Return the most samples and optimizer calls of the default search on these tasks."""
    samples = samples_of(len(without_test(tasks)))
    return samples, calls_of(min(samples, settings.max_rollouts or samples))


class OutOfBudget(StopRun):
    """The search ends here, because it would spend a reserve or exceed its own limit."""

    def __init__(self, reason: str, *, capped: bool = False) -> None:
        kind = Stop.CAP if capped else Stop.SPENT
        super().__init__(reason, kind=kind)
        self.capped = capped
        """True if a cap of the user ended it: with a higher one the run could continue."""


def require(purse: Purse, rollouts: int) -> None:
    """Raise OutOfBudget if so many more rollouts may not be taken."""
    if why := purse.refusal(rollouts):
        raise OutOfBudget(why, capped=purse.is_bound_by_cap)


def require_calls(purse: Purse, calls: int) -> None:
    """Raise OutOfBudget if a cap leaves fewer optimizer calls."""
    if why := purse.refusal_of_calls(calls):
        raise OutOfBudget(why, capped=True)
