"""``--skillopt-init``: a valid SKILL.md to start from, made of the tasks' docstrings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_skillopt.skill.blocks import new_skill
from pytest_skillopt.skill.files import SKILL_FILE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_skillopt.suite.tasks import SkillTask

_DESCRIPTION_LIMIT = 1000
"""The Agent Skills format allows 1,024 characters."""
_NAME_LIMIT = 64


def make_skill(path: Path, tasks: Sequence[SkillTask]) -> None:
    """Write a skill that names its purposes, from the first lines of the tasks' docstrings."""
    purposes = list(dict.fromkeys(task.doc.split("\n")[0].strip() for task in tasks if task.doc))
    name = _skill_name(path.parent.name if path.name == SKILL_FILE else path.stem)
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


def _skill_name(text: str) -> str:
    """A file or folder as a name of the Agent Skills format: ``My notes_2`` is ``my-notes-2``."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_NAME_LIMIT].strip("-") or "skill"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else text + "."
