"""Add-on: tasks that are nearly the same are kept in one split, with a note for the report."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_skillopt import SkillTask


def alike(
    tasks: Sequence[SkillTask],
) -> tuple[list[list[str]], Callable[[Sequence[SkillTask]], list[str]]]:
    """Group the ids of tasks that are nearly the same; return with it what notes them."""
    from pytest_skillopt.addons.near_duplicates.words import groups_of, notes_on

    groups = groups_of(tasks)
    return groups, partial(notes_on, groups)
