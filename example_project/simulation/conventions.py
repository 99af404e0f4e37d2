"""How a text states a house convention, and what a text states about all of them.

A convention has one value that a careless reader falls into (its habit) and others that a text can
ask for. Statements are recognised by phrases, not by sentences, so that a paraphrase works and a
contradiction is noticed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from simulation.language import Statement, is_negated, statements
from simulation.phrases import CONVENTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulation.phrases import Convention, Reading


def stated(convention: Convention, texts: Sequence[Statement]) -> frozenset[str]:
    """The values that a text asks for: none, one, or several where it contradicts itself."""
    return frozenset(value for text in texts if (value := _value(convention, text)))


@lru_cache(maxsize=512)
def read(text: str) -> dict[str, frozenset[str]]:
    """What a text states about every convention, by name. Treat the result as read-only."""
    found = statements(text)
    return {name: stated(convention, found) for name, convention in CONVENTIONS.items()}


def _value(convention: Convention, statement: Statement) -> str | None:
    """The value that one statement asks for: the first reading that fits speaks for it."""
    for reading in convention.readings:
        value = _apply(reading, statement.full)
        if value is not None:
            return value
    return None


def _apply(reading: Reading, text: str) -> str | None:
    compiled = _compile(reading)
    if not all(topic.search(text) for topic in compiled.about):
        return None
    if compiled.unless is not None and compiled.unless.search(text):
        return None
    found = compiled.phrase.search(text)
    if found is None:
        return None
    negated = is_negated(text, found.start(), reach=reading.reach)
    return reading.otherwise if negated else reading.value


@dataclass(frozen=True, slots=True)
class _Compiled:
    phrase: re.Pattern[str]
    about: tuple[re.Pattern[str], ...]
    unless: re.Pattern[str] | None


@lru_cache(maxsize=256)
def _compile(reading: Reading) -> _Compiled:
    return _Compiled(
        re.compile(reading.phrase),
        tuple(re.compile(topic) for topic in reading.about),
        re.compile(reading.unless) if reading.unless else None,
    )
