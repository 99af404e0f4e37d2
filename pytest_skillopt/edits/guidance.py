"""What the user wants of every edit: house rules, and what the tasks fix about their answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.skill.contract import fixed_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.suite.tasks import SkillTask

_LIMIT = 8_000
"""Characters of preferences that go into a prompt."""
_FROM_DOCSTRINGS = 12
"""Statements taken from docstrings."""


def read_preferences(setting: str, root: Path | None = None) -> str:
    """The house rules: the setting itself, or the Markdown file that it names.

    Raises:
        ValueError: it names a ``.md`` file that is not there or is not UTF-8.
    """
    text = setting.strip()
    if not text.endswith(".md") or "\n" in text:
        return text[:_LIMIT]
    path = (root or Path()) / text
    try:
        return path.read_text(encoding="utf-8").strip()[:_LIMIT]
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"skillopt_preferences: {path} cannot be read: {error}") from None


def contracts_of(train: Sequence[SkillTask]) -> tuple[str, ...]:
    """What the train tasks fix about their answers, each statement once.

    That is the ``contract=`` of the marker, and the sentences of a docstring that say the form, the
    language, or that nothing is asked back. Val and test tasks are not looked at.
    """
    stated = dict.fromkeys(task.contract.strip() for task in train if task.contract.strip())
    docs = dict.fromkeys(task.doc for task in train if task.doc)
    said = dict.fromkeys(sentence for doc in docs for sentence in fixed_by(doc))
    return tuple(dict.fromkeys([*stated, *list(said)[:_FROM_DOCSTRINGS]]))
