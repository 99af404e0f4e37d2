"""Several skills of one suite: what was accepted one by one has to hold for the whole suite."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.run.result import Status
    from pytest_skillopt.search.outcome import TrainOutcome

_NOTHING = 1e-12
"""Sums of rates closer to zero than this are zero."""


def check_together(outcomes: Sequence[TrainOutcome]) -> tuple[list[TrainOutcome], str]:
    """Take back what may not be written, in the light of all skills of the run.

    An interrupted run leaves none. Where several skills were accepted, none may be worse in the
    counts of its own last comparison, and the mean over the tasks of all skills, those that stay
    as they are included, has to rise strictly.

    Returns:
        The outcomes, and what the whole suite came to in words; empty for fewer than two accepted.
    """
    outcomes = list(outcomes)
    if any(outcome.status == "interrupted" for outcome in outcomes):
        why = "a better skill was found; nothing is written before all skills have been trained"
        return [_taken_back(o, "interrupted", why) for o in outcomes], ""
    if sum(outcome.status == "accepted" for outcome in outcomes) < 2:
        return outcomes, ""
    why = "accepted alone, but worse in the counts of the last comparison"
    outcomes = [
        _taken_back(o, "rejected", why) if math.fsum(_gains(o)) < -_NOTHING else o for o in outcomes
    ]
    gains = [gain for outcome in outcomes for gain in _gains(outcome)]
    kept = [outcome.skill for outcome in outcomes if outcome.status == "accepted"]
    if kept and math.fsum(gains) <= _NOTHING:
        why = "accepted alone, but the pass rate of the whole suite does not strictly rise"
        outcomes = [_taken_back(o, "rejected", why) for o in outcomes]
    points = 100 * math.fsum(gains) / len(gains)
    return outcomes, (
        f"with {' and '.join(kept) or 'no skill'} the pass rate of all {len(gains)} tasks that the "
        f"last comparisons measured changes by {points:+.1f} points"
    )


def _gains(outcome: TrainOutcome) -> list[float]:
    """What each train and val task gains, in the counts of the last comparison."""
    rows = [row for row in outcome.tasks if row.split != "test" and row.before.n]
    if outcome.status != "accepted":
        return [0.0 for _ in rows]
    return [
        row.after.passed / row.after.n - row.before.passed / row.before.n
        for row in rows
        if row.after and row.after.n
    ]


def _taken_back(outcome: TrainOutcome, status: Status, why: str) -> TrainOutcome:
    if outcome.status != "accepted":
        return outcome
    return replace(outcome, status=status, after=outcome.before, reason=f"{why}; {outcome.reason}")
