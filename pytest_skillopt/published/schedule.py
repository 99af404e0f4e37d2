"""How many edits an update may make at a step: the learning rate of a text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pytest_skillopt.settings import Settings

_LEAST = 2
Schedule = Literal["constant", "linear", "cosine"]


def edit_budget(
    schedule: Schedule | str, step: int, steps: int, *, start: int = 4, end: int = 2
) -> int:
    """Edits allowed at ``step`` (the first is 1) of a planned ``steps``, from ``start`` to ``end``.

    With ``t = min(step, steps) / steps``: linear is ``round(start + (end - start) t)``, cosine is
    ``round(end + (start - end) (1 + cos(pi t)) / 2)``, as in SkillOpt, which counts steps from 1
    too: of two steps with the defaults the first has 3 edits, the second 2. Python's ``round``
    takes a half to the even neighbour (2.5 to 2, 3.5 to 4). Never below ``end``, never below 1.

    Raises:
        ValueError: the name of the schedule is unknown, or ``end`` is above ``start``.
    """
    if end > start:
        raise ValueError(f"an edit budget falls: the last, {end}, is above the first, {start}")
    floor = max(1, end)
    if schedule == "constant":
        return max(1, start)
    t = min(max(step, 0), steps) / steps if steps > 0 else 1.0
    if schedule == "linear":
        return max(floor, round(start + (end - start) * t))
    if schedule == "cosine":
        return max(floor, round(end + (start - end) * (1 + math.cos(math.pi * t)) / 2))
    raise ValueError(f"schedule {schedule!r} is none of constant, linear, cosine")


def least_edits(settings: Settings) -> int:
    """What the budget ends at: as set, or 2 where the first is no less."""
    return settings.min_edit_budget or min(_LEAST, settings.edit_budget)
