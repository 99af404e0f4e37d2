"""Statements about an answer, checked by a script if possible, else by a model."""

from __future__ import annotations

import functools
import re
import warnings
from dataclasses import dataclass

_TERM = re.compile(
    r"""\s*(?:the\s+)?(?:(?:output|answer|response|reply)\s+)?
    (?P<verb>does\s+not\s+(?:contain|include|match)|must\s+not\s+contain|not\s+contains?
      |contains|includes|mentions|matches|equals|starts\s+with|ends\s+with)
    \s+(?:(?:regex|pattern)\s+)?
    (?:"(?P<double>(?:[^"\\]|\\.)+)"|'(?P<single>(?:[^'\\]|\\.)+)'|`(?P<tick>[^`]+)`
      |/(?P<regex>(?:[^/\\]|\\.)+)/(?P<flags>[ims]*))\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_JOIN = re.compile(r"(or|and)\b\s*", re.IGNORECASE)
_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}


@dataclass(frozen=True, slots=True)
class Test:
    """Check by a script: whether a regular expression is found, or with ``lacks`` is not."""

    regex: str
    flags: int = 0
    lacks: bool = False

    def holds(self, answer: str) -> bool:
        return (_pattern(self.regex, self.flags).search(answer) is None) == self.lacks


@dataclass(frozen=True, slots=True)
class Statement:
    """Statement that holds for a good answer.

    ``tests`` is empty if a model must judge it; else all tests of at least one inner tuple must
    hold.
    """

    text: str
    tests: tuple[tuple[Test, ...], ...] = ()

    @property
    def judged(self) -> bool:
        return not self.tests

    def holds(self, answer: str) -> bool:
        """Return whether the tests hold."""
        return any(all(test.holds(answer) for test in tests) for tests in self.tests)


def statement(text: str) -> Statement:
    """Parse a statement; one that consists of simple terms needs no model.

    Args:
        text: terms such as ``contains 'x'``, ``does not contain "x"``, ``matches /x/i``,
            ``starts with 'x'``, ``ends with 'x'``, ``equals 'x'``, joined by ``or`` and ``and``
            (``and`` binds more tightly); anything else is judged by a model.

    Raises:
        ValueError: a regular expression is invalid.
    """
    groups: list[list[Test]] = [[]]
    at = 0
    while match := _TERM.match(text, at):
        groups[-1].append(_test(match))
        at = match.end()
        if at == len(text) or text[at:].strip() in (".", ""):
            return Statement(text, tuple(tuple(group) for group in groups))
        join = _JOIN.match(text, at)
        if join is None:
            break
        at = join.end()
        if join[1].lower() == "or":
            groups.append([])
    return Statement(text)


def pattern(verb: str, value: str, text: str = "") -> Statement:
    """Make a statement about a value, which is a regular expression if it is to (not) match.

    Args:
        verb: ``matches``, ``contains``, ``does not match`` or ``does not contain``.
        value: what is looked for; ``^`` and ``$`` are the ends of a line.
        text: the statement; by default verb and value.

    Raises:
        ValueError: the regular expression is invalid.
    """
    is_regex = "match" in verb
    regex, shown = (value, f"/{value}/") if is_regex else (re.escape(value), repr(value))
    test = _compiled(regex, re.MULTILINE, "not" in verb)
    return Statement(text or f"{verb} {shown}", ((test,),))


def _test(match: re.Match[str]) -> Test:
    verb = " ".join(match["verb"].lower().split())
    quoted = match["double"] or match["single"] or match["tick"]
    if match["regex"]:
        flags = sum(_FLAGS[letter] for letter in {*match["flags"].lower()})
        return _compiled(match["regex"], flags, "not" in verb)
    text = re.sub(r"\\(['\"\\])", r"\1", quoted) if match["tick"] is None else quoted
    if verb == "equals":
        return Test(rf"\A\s*{re.escape(text.strip())}\s*\Z")
    if verb == "starts with":
        return Test(rf"\A\s*{re.escape(text)}")
    if verb == "ends with":
        return Test(rf"{re.escape(text)}\s*\Z")
    pattern = quoted if "match" in verb else re.escape(text)
    return _compiled(pattern, 0, "not" in verb)


def _compiled(regex: str, flags: int, lacks: bool) -> Test:
    try:
        _pattern(regex, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{regex!r:.60} is not a regular expression: {error}") from None
    return Test(regex, flags, lacks)


@functools.cache
def _pattern(regex: str, flags: int) -> re.Pattern[str]:
    """Compile without Python's FutureWarnings, which some sessions turn into errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(regex, flags)
