"""``--skillopt-init``: a valid SKILL.md to start from, made of the tasks' docstrings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.propose.manifest import slug, unnamed
from pytest_skillopt.skill.blocks import new_skill

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_skillopt.suite.tasks import SkillTask

_DESCRIPTION_LIMIT = 1000
"""The Agent Skills format allows 1,024 characters."""


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
