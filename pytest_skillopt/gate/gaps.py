"""What a decision cannot measure: samples that ended in errors, and tasks that were skipped."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_skillopt.gate.draws import Want
from pytest_skillopt.gate.verdict import CANDIDATE, INCUMBENT
from pytest_skillopt.gate.wording import named

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from pytest_skillopt.gate.tallies import Tallies, Tally
    from pytest_skillopt.gate.verdict import Arm, Draw

MAX_REPLACEMENTS = 3
"""Samples in a row that a task may fail to give before its arm counts as not measurable."""
MIN_ERRORS = 3
"""Infrastructure errors from which their share is looked at: one of ten says nothing."""


class Unmeasured(Exception):
    """The evidence cannot be obtained; ends the decision."""

    def __init__(self, reason: str, missing: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.missing = missing


def check_errors(tallies: Tallies, drawn: int, limit: float) -> None:
    """Fail where too many of the samples ended in infrastructure errors.

    Tasks that gave nothing else are not counted as long as so few may be left out.

    Args:
        drawn: samples asked for.
        limit: share of errors, and of tasks that are left out, that is allowed, in [0, 1].

    Raises:
        Unmeasured: there are more.
    """
    errors = tallies.errors
    silent = [task for task in errors if not tallies.was_measured(task)]
    if len(silent) <= limit * len(tallies.all_tasks):
        errors = Counter({task: n for task, n in errors.items() if task not in silent})
        drawn -= sum(tallies.errors[task] for task in silent)
    count = errors.total()
    if count >= (MIN_ERRORS if limit else 1) and count > limit * drawn:
        raise Unmeasured(
            f"{count} of {drawn} samples ended in infrastructure errors "
            f"(at most {limit:.0%} are allowed), so nothing is decided; they are of "
            f"{named(list(errors))}",
            f"{count} samples of {named(list(errors))}",
        )


def replacements(missing: Sequence[Draw], tallies: Tallies) -> list[Want]:
    """One more sample for each that ended in an error, where there is hope that it helps."""
    return [
        Want(draw.arm, draw.task, draw.stream)
        for draw in missing
        if not _is_dead(tallies[draw.arm, draw.task])
    ]


def settle_errors(
    tallies: Tallies, must_pass: Container[str], limit: float
) -> list[tuple[Arm, str]]:
    """Leave out the tasks that give nothing but infrastructure errors, under both arms alike.

    A task that was measured once, under either arm, is never left out: what it would have shown
    might be the very reason why it gives errors now. See docs/decisions/gate-errors.md.

    Args:
        must_pass: tasks that no decision is made without.
        limit: share of the suite that may be left out, in [0, 1].

    Returns:
        Arms and tasks to try, where only the other arm was given up.

    Raises:
        Unmeasured: a task cannot be measured and may not be left out.
    """
    probes: list[tuple[Arm, str]] = []
    gone = []
    for task in tallies.tasks:
        both = {arm: tallies[arm, task] for arm in (INCUMBENT, CANDIDATE)}
        dead = [arm for arm, tally in both.items() if _is_dead(tally)]
        if not dead:
            continue
        skipped = any(tally.skipped for tally in both.values())
        if skipped or task in must_pass or tallies.was_measured(task):
            raise Unmeasured(
                f"{task} could not be measured under the {dead[0]}: "
                f"{both[dead[0]].failures_in_a_row} infrastructure errors in a row",
                f"samples of {task}",
            )
        if len(dead) == 2:
            gone.append(task)
        elif not both[_other(dead[0])].failures_in_a_row:
            probes.append((_other(dead[0]), task))
    tallies.leave_out(gone)
    if len(tallies.left_out) > limit * len(tallies.all_tasks):
        raise Unmeasured(
            f"{named(tallies.left_out)} gave nothing but infrastructure errors under both skills; "
            f"of {len(tallies.all_tasks)} tasks at most {limit:.0%} may be left out "
            "(skillopt_max_error_rate), or deselect what cannot run",
            f"samples of {named(tallies.left_out)}",
        )
    return probes


def _is_dead(tally: Tally) -> bool:
    return tally.failures_in_a_row > MAX_REPLACEMENTS


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
        words = "skipped or left out" if tallies.left_out else "skipped"
        raise Unmeasured(f"every task was {words}", "at least one task that runs")
    return probes


def _other(arm: Arm) -> Arm:
    return CANDIDATE if arm == INCUMBENT else INCUMBENT
