"""The skills and the splits of a run, from its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.propose.manifest import slug, unnamed
from pytest_skillopt.skill.edits import new_skill
from pytest_skillopt.skill.files import read_skill
from pytest_skillopt.suite.splits import assign_splits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_skillopt.mode import Mode
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.suite.tasks import SkillTask

_DESCRIPTION_LIMIT = 1000
"""The Agent Skills format allows 1,024 characters."""


def split_tasks(
    tasks: Sequence[SkillTask], ratio: str, mode: Mode
) -> tuple[list[SkillTask], list[str]]:
    """Assign the splits, skill by skill; only a training needs them.

    Raises:
        SplitError: the tasks cannot be split as asked.
    """
    if mode.name != "train":
        return list(tasks), []
    split: dict[str, SkillTask] = {}
    notes: list[str] = []
    for skill in skills_of(tasks):
        group = [task for task in tasks if task.skill == skill]
        assigned, said = assign_splits(group, ratio)
        split.update((task.id, task) for task in assigned)
        notes += said
    return [split[task.id] for task in tasks], notes


def skills_of(tasks: Iterable[SkillTask]) -> list[str]:
    """The skills that the tasks are about, each once, in order."""
    return list(dict.fromkeys(task.skill for task in tasks))


def read_documents(
    root: Path, tasks: Sequence[SkillTask], settings: Settings, *, init: bool = False
) -> dict[str, Document]:
    """The skills on disk; with ``init`` a missing one is made from the tasks' docstrings.

    Those of the train tasks: the optimizer reads the skill, and must not see the others.

    Raises:
        SkillError: a file that is missing or cannot be a skill.
    """
    found: dict[str, Document] = {}
    for skill in skills_of(tasks):
        path = root / skill
        if init and not path.exists():
            from pytest_skillopt.modes.skills import make_skill

            shown = [t for t in tasks if t.skill == skill and t.split in ("train", "both")]
            make_skill(path, shown)
        found[skill] = read_skill(path, root)
    return found


def make_skill(path: Path, tasks: Sequence[SkillTask]) -> None:
    """Write a skill that names its purposes, from the first lines of the tasks' docstrings."""
    purposes = list(dict.fromkeys(task.doc.split("\n")[0].strip() for task in tasks if task.doc))
    name = slug(unnamed(path))
    about = " ".join(_sentence(purpose) for purpose in purposes)
    description = about[:_DESCRIPTION_LIMIT] or f"How to work on {name}."
    body = "\n".join(
        [f"# {name}", "", "This skill is for:", "", *(f"- {purpose}" for purpose in purposes)]
        if purposes
        else [f"# {name}"]
    )
    document = new_skill(name, description, body + "\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(document.data)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else text + "."
