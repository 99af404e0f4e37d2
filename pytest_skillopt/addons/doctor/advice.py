"""Notes on the tasks of a training before it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.modes.skills import skills_of
from pytest_skillopt.report import words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_skillopt import SkillTask
    from pytest_skillopt.settings import Settings

_FEW_TASKS = 10
"""Number of val tasks below which a training notes that small gains go undetected."""


def notes_on_tasks(tasks: Sequence[SkillTask], settings: Settings) -> Iterator[str]:
    """Note the skills with few val tasks, or without the trigger tasks that training needs."""
    for skill in skills_of(tasks):
        found = {task.trigger for task in tasks if task.skill == skill}
        for wanted in [True, False] if settings.train_description else ():
            if wanted not in found:
                kind = "a request that should" if wanted else "a near miss that should not"
                yield f"{skill}: no trigger task has {kind} load the skill (trigger={wanted})"
        val = sum(task.skill == skill and task.split in ("val", "both") for task in tasks)
        if val < _FEW_TASKS:
            yield (
                f"{skill}: only {words.plural(val, 'val task')}: the gate can detect only large "
                f"gains, e.g. a task fixed completely; have at least {_FEW_TASKS}"
            )
