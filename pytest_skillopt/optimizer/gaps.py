"""What a decision cannot measure: samples that ended in errors, and tasks that were skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.optimizer.draws import Want
from pytest_skillopt.optimizer.verdict import CANDIDATE, INCUMBENT
from pytest_skillopt.optimizer.wording import named

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from pytest_skillopt.optimizer.tallies import Tallies
    from pytest_skillopt.optimizer.verdict import Arm, Draw

MAX_REPLACEMENTS = 3
"""Samples in a row that one task may fail to give before it counts as not measurable."""
MIN_ERRORS = 3
"""Infrastructure errors from which their share is looked at: one of ten says nothing."""


class Unmeasured(Exception):
    """The evidence cannot be obtained; ends the decision."""

    def __init__(self, reason: str, missing: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.missing = missing


def check_errors(errors: Counter[str], drawn: int, limit: float) -> None:
    """Fail where too many of the samples ended in infrastructure errors.

    Args:
        errors: by task.
        drawn: samples asked for.
        limit: share of errors that is allowed, in [0, 1].

    Raises:
        Unmeasured: there are more.
    """
    count = errors.total()
    if count >= (MIN_ERRORS if limit else 1) and count > limit * drawn:
        raise Unmeasured(
            f"{count} of {drawn} samples ended in infrastructure errors "
            f"(at most {limit:.0%} are allowed), so nothing is decided; they are of "
            f"{named(list(errors))}",
            f"{count} samples of {named(list(errors))}",
        )


def replacements(missing: Sequence[Draw], tallies: Tallies) -> list[Want]:
    """One more sample for each that ended in an error.

    Raises:
        Unmeasured: a task has failed to give one too often in a row.
    """
    for draw in missing:
        if tallies[draw.arm, draw.task].failures_in_a_row > MAX_REPLACEMENTS:
            raise Unmeasured(
                f"{draw.task} could not be measured under the {draw.arm}: "
                f"{MAX_REPLACEMENTS + 1} infrastructure errors in a row",
                f"{len(missing)} samples of {named([d.task for d in missing])}",
            )
    return [Want(draw.arm, draw.task, draw.stream) for draw in missing]


def settle_skips(tallies: Tallies) -> list[tuple[Arm, str]]:
    """Drop the tasks that were skipped under both arms.

    A skip is part of how the task behaves under that skill, never an infrastructure error: a
    candidate under which a task skips must not be compared without it.

    Returns:
        Arms and tasks to sample, where a skip was seen under the other arm alone.

    Raises:
        Unmeasured: a task was skipped and measured, or no task is left.
    """
    probes: list[tuple[Arm, str]] = []
    gone = set()
    for task in tallies.tasks:
        both = {arm: tallies[arm, task] for arm in (INCUMBENT, CANDIDATE)}
        skipped = [arm for arm, tally in both.items() if tally.skipped]
        if not skipped:
            continue
        if any(tally.n for tally in both.values()):
            raise Unmeasured(
                f"{task} was skipped under the {skipped[0]} and measured besides, so the two "
                "skills cannot be compared on the same tasks",
                f"samples of {task} without a skip; or deselect it",
            )
        if len(skipped) == 2:
            gone.add(task)
        elif not both[_other(skipped[0])].failures_in_a_row:
            probes.append((_other(skipped[0]), task))
    tallies.drop(gone)
    if not tallies.tasks:
        raise Unmeasured("every task was skipped", "at least one task that runs")
    return probes


def _other(arm: Arm) -> Arm:
    return CANDIDATE if arm == INCUMBENT else INCUMBENT
