"""Statements about an answer: those that a script can decide, and those that a model grades."""

from __future__ import annotations

import functools
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Kind = Literal["judge", "has", "lacks", "equals", "starts", "ends"]

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
    """One thing that a script looks for."""

    kind: Kind
    value: str
    """A regular expression for ``has`` and ``lacks``, else a text."""
    flags: int = 0

    def holds(self, answer: str) -> bool:
        text = answer.strip()
        if self.kind in ("has", "lacks"):
            found = _pattern(self.value, self.flags).search(answer) is not None
            return found == (self.kind == "has")
        if self.kind == "equals":
            return text == self.value.strip()
        return text.startswith(self.value) if self.kind == "starts" else text.endswith(self.value)


@dataclass(frozen=True, slots=True)
class Statement:
    """Something that a good answer fulfils.

    ``tests`` is empty where a model grades it; else any of the inner tuples must hold as a whole.
    """

    text: str
    tests: tuple[tuple[Test, ...], ...] = ()

    @property
    def judged(self) -> bool:
        return not self.tests

    def holds(self, answer: str) -> bool:
        """Whether it holds, for one that a script decides."""
        return any(all(test.holds(answer) for test in tests) for tests in self.tests)


@dataclass(frozen=True, slots=True)
class Grade:
    """What became of one statement."""

    text: str
    passed: bool
    evidence: str
    judged: bool


def statement(text: str) -> Statement:
    """A statement in words; those of the small language of ``contains '...'`` need no model.

    Args:
        text: terms such as ``contains 'x'``, ``does not contain "x"``, ``matches /x/i``,
            ``starts with 'x'``, ``ends with 'x'``, ``equals 'x'``, joined by ``or`` and ``and``
            (``and`` binds closer); whatever is not wholly made of them is graded by a model.

    Raises:
        ValueError: a regular expression that is not one.
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


def pattern(text: str, regex: str, *, lacks: bool = False, flags: int = 0) -> Statement:
    """A statement that a regular expression is found, or is not.

    Raises:
        ValueError: it is not a regular expression.
    """
    return Statement(text, ((_compiled("lacks" if lacks else "has", regex, flags),),))


def grade_by_script(statements: Sequence[Statement], answer: str) -> Iterator[Grade]:
    """Grades of the statements that need no model, in their order."""
    for each in statements:
        if not each.judged:
            passed = each.holds(answer)
            yield Grade(each.text, passed, "" if passed else "a script found otherwise", False)


def _test(match: re.Match[str]) -> Test:
    verb = " ".join(match["verb"].lower().split())
    quoted = match["double"] or match["single"] or match["tick"]
    if match["regex"]:
        flags = 0
        for letter in match["flags"]:
            flags |= _FLAGS[letter.lower()]
        return _compiled("lacks" if "not" in verb else "has", match["regex"], flags)
    text = re.sub(r"\\(['\"\\])", r"\1", quoted) if match["tick"] is None else quoted
    if verb in ("equals", "starts with", "ends with"):
        kinds: dict[str, Kind] = {
            "equals": "equals",
            "starts with": "starts",
            "ends with": "ends",
        }
        return Test(kinds[verb], text)
    regex = quoted if "match" in verb else re.escape(text)
    return _compiled("lacks" if "not" in verb else "has", regex, 0)


def _compiled(kind: Kind, regex: str, flags: int) -> Test:
    try:
        _pattern(regex, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{regex!r:.60} is not a regular expression: {error}") from None
    return Test(kind, regex, flags)


@functools.cache
def _pattern(regex: str, flags: int) -> re.Pattern[str]:
    """Compiled without Python's warnings of what it may mean one day: some sessions raise them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(regex, flags)
