"""Add-on: an edit that carries words of a particular task instead of a rule is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_skillopt import Edit, SkillTask
    from pytest_skillopt.edits.vetting import Refusal


def edit_check(tasks: Sequence[SkillTask], skill: str) -> Callable[[Edit, str], Refusal | None]:
    """Index the tasks; words of the skill at the start are the user's own."""
    from pytest_skillopt.addons.task_words.leaks import LeakIndex

    return LeakIndex(tasks, skill).refusal
