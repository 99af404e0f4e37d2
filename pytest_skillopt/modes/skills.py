"""Read the skills of a run and assign the splits of its tasks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pytest_skillopt.skill.read import read_version
from pytest_skillopt.skill.text import SkillError
from pytest_skillopt.skill.trained import Trained, check_kind
from pytest_skillopt.skill.version import SKILL_FILE, place_of
from pytest_skillopt.tasks.splits import assign_splits
from pytest_skillopt.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_skillopt.mode import Mode
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.version import Version
    from pytest_skillopt.tasks.task import SkillTask

_FEW_TASKS = 10
"""Number of val tasks below which a training notes that small gains go undetected."""
_REQUESTS = {True: "a request that should", False: "a near miss that should not"}
"""Kinds of trigger tasks, by whether the agent should load the skill."""


def split_tasks(
    tasks: Sequence[SkillTask], settings: Settings, mode: Mode
) -> tuple[list[SkillTask], list[str]]:
    """Assign each skill's tasks to splits, if the mode wants that; return tasks and notes.

    Raises:
        SplitError: the tasks cannot be split.
    """
    notes: list[str] = []
    if not mode.splits:
        return list(tasks), notes
    split: dict[str, SkillTask] = {}
    for skill in skills_of(tasks):
        group = [task for task in tasks if task.skill == skill]
        assigned, more = assign_splits(group, settings.split, settings.split_seed)
        split.update((task.id, task) for task in assigned)
        notes += more
    return [split[task.id] for task in tasks], notes


def skills_of(tasks: Iterable[SkillTask]) -> list[str]:
    return list(dict.fromkeys(task.skill for task in tasks))


def read_versions(
    root: Path, tasks: Sequence[SkillTask], settings: Settings, mode: Mode
) -> dict[str, Version]:
    """Read the skills.

    Raises:
        SkillError: a skill cannot be read, or a training would change a file of two skills, or one
            that ``adopt`` does not write.
    """
    trained = Trained.of(settings)
    versions = {skill: read_version(Path(skill), root, trained) for skill in skills_of(tasks)}
    if mode.name == "train":
        _check_places(versions, root)
    return versions


def _check_places(versions: Mapping[str, Version], root: Path) -> None:
    owners: dict[Path, str] = {}
    for skill, version in versions.items():
        for name in version:
            place = place_of(skill, name)
            check_kind(place)
            owner = owners.setdefault((root / place).resolve(), skill)
            if owner != skill:
                raise SkillError(
                    f"{place} belongs to {owner} and {skill}: what one of them learns would change "
                    "the other one, unmeasured; choose the tests of one skill, by paths or -k, or "
                    "name only other files in skillopt_files"
                )


def notes_on_skills(versions: Mapping[str, Version]) -> Iterator[str]:
    """Note what hinders the training of a skill, or an agent that is to load it."""
    for path, version in versions.items():
        for name, text in version.items():
            of = path if name == SKILL_FILE else f"{path}: {name}"
            yield from (f"{of}: {warning}" for warning in text.warnings)
        if PurePosixPath(path).name == SKILL_FILE and (why := version.main.unloadable):
            yield f"{path}: {why}: agents do not load such a skill"


def notes_on_tasks(tasks: Sequence[SkillTask], settings: Settings) -> Iterator[str]:
    """Note the skills with few val tasks, or without the trigger tasks that training needs."""
    for skill in skills_of(tasks):
        triggers = {task.trigger for task in tasks if task.skill == skill}
        for trigger, request in _REQUESTS.items():
            if settings.train_description and trigger not in triggers:
                yield f"{skill}: no trigger task has {request} load the skill (trigger={trigger})"
        val = sum(task.skill == skill and task.split == "val" for task in tasks)
        if 0 < val < _FEW_TASKS:
            yield (
                f"{skill}: only {plural(val, 'val task')}: the gate can detect only large "
                f"gains, e.g. a task fixed completely; have at least {_FEW_TASKS}"
            )


def suite_of(tasks: Sequence[SkillTask], skill: str, settings: Settings) -> list[SkillTask]:
    """List the tasks by which a change of a skill is judged.

    If descriptions are trained, these are also the trigger tasks of the other skills, from which an
    edit of this one may take requests. No edit of this one is made for those, so that they are
    val tasks here, or of the test split as there.
    """
    own = [task for task in tasks if task.skill == skill]
    if not (settings.train_description and any(task.trigger is not None for task in own)):
        return own
    others = [task for task in tasks if task.skill != skill and task.trigger is not None]
    return own + [task if task.split == "test" else replace(task, split="val") for task in others]
