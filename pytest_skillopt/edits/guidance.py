"""What the user wants of every edit: house rules, and what the tasks fix about their answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_skillopt.suite.tasks import SkillTask

_LIMIT = 8_000
"""Characters of preferences that go into a prompt."""
_FROM_DOCSTRINGS = 12
"""Statements taken from docstrings."""

_ANSWERS = (
    r"\b(?:answers?|repl(?:y|ies)|responds?|returns?|outputs?|writes?|gives?|produces?|emits?"
    r"|prints?)\W+(?:[\w-]+\W+){0,5}?"
)
_FIXES = re.compile(
    _ANSWERS + r"(?:(?:as|in|one|an?|only|valid)\W+){0,3}(?:json|yaml|xml|csv|toml|html|markdown"
    r"|plain text|prose|english|german|french|spanish|italian|portuguese|dutch|polish|swedish"
    r"|danish|finnish|czech|turkish|russian|ukrainian|arabic|hindi|chinese|japanese|korean)\b"
    r"|\bno (?:\w+ )?questions\b|\b(?:never|without|do(?:es)? not) ask",
    re.IGNORECASE,
)
_CONDITION = re.compile(r"\b(?:if|when|unless|where|except)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")


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


def fixed_by(text: str) -> Iterator[str]:
    """The sentences of a docstring that say the form or the language of an answer."""
    for sentence in _SENTENCE.split(" ".join(text.split())):
        if _FIXES.search(sentence) and not _CONDITION.search(sentence):
            yield sentence
