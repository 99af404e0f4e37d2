"""Statements about an answer, checked by a script if they name a pattern, else by a model."""

from __future__ import annotations

import functools
import re
import warnings
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Statement:
    """Statement that holds for a good answer."""

    text: str
    regex: str = ""
    """Regular expression that decides it; empty if a model must judge it."""
    lacks: bool = False
    """Whether it holds for answers in which the expression is not found."""

    @property
    def judged(self) -> bool:
        return not self.regex

    def holds(self, answer: str) -> bool:
        """Return whether a statement with a pattern holds."""
        return (_compiled(self.regex).search(answer) is None) == self.lacks


def pattern(verb: str, value: str, text: str = "") -> Statement:
    """Make a statement about a value, which is a regular expression if it is to (not) match.

    Args:
        verb: ``matches``, ``contains``, ``does not match`` or ``does not contain``.
        value: what is looked for; ``^`` and ``$`` are the ends of a line.
        text: the statement; by default verb and value.

    Raises:
        ValueError: the regular expression is invalid, or the value is empty.
    """
    is_regex = "match" in verb
    regex, shown = (value, f"/{value}/") if is_regex else (re.escape(value), repr(value))
    if not regex:
        raise ValueError(f"{verb!r} needs a value")
    try:
        _compiled(regex)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{regex!r:.60} is not a regular expression: {error}") from None
    return Statement(text or f"{verb} {shown}", regex, "not" in verb)


@functools.cache
def _compiled(regex: str) -> re.Pattern[str]:
    """Compile without Python's FutureWarnings, which some sessions turn into errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(regex, re.MULTILINE)
