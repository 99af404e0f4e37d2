"""What the user wants of every edit: house rules, and what the tasks fix about their answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.suite.tasks import SkillTask

_LIMIT = 8_000
"""Characters of preferences that go into a prompt."""


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
    """What the train tasks fix, each statement once; val and test tasks are not looked at."""
    return tuple(dict.fromkeys(task.contract.strip() for task in train if task.contract.strip()))
