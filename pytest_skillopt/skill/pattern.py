"""The form of what the lint looks for, and how it is written down.

Each pattern is tried on one sentence (or one line of commands) at a time; gaps are counted in
words and bounded. Patterns marked ``negatable`` do not count behind "never", "do not" and the like
(``lint.py`` decides that): a skill may forbid what an edit may not ask for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Form = Literal["prose", "commands"]


@dataclass(frozen=True, slots=True)
class Pattern:
    rule: str
    form: Form
    regex: re.Pattern[str]
    negatable: bool = True


def words(most: int) -> str:
    """At most so many words, with what stands between them."""
    return rf"(?:\W+[\w'-]+){{0,{most}}}?\W+"


def prose(rule: str, regex: str, *, negatable: bool = True) -> Pattern:
    return Pattern(rule, "prose", re.compile(regex), negatable)


def commands(rule: str, *parts: str) -> Pattern:
    return Pattern(rule, "commands", re.compile("|".join(parts), re.IGNORECASE), negatable=True)
