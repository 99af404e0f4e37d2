"""Read all dialects of ``evals.json`` and ``eval_queries.json`` into one form.

A file is a list, or an object with a list under ``evals``. The statements about a good answer are
texts or objects under ``assertions``, ``expectations``, ``checks``, ``scorers``, ``must_have``,
``must_not_have``, ``expected_behavior`` or ``success_criteria``, or only a text under
``expected_output``. These are the formats of agentskills.io, skill-creator and public skills.
"""

from __future__ import annotations

import functools
import json
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_skillopt.skill.read import read_bounded
from pytest_skillopt.skill.text import SkillError
from pytest_skillopt.untrusted import parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

MOST = 1000
"""Maximum number of evals in one file; more are taken for a mistake."""
_MOST_BYTES = 8 * 1024 * 1024
_SLUG = 48
_MOST_SAID = 5
"""Maximum number of problems that one warning names."""

_LISTS = ("evals", "cases", "tests", "queries")
_IGNORED = frozenset(
    {
        "id", "name", "title", "description", "notes", "tags", "category", "difficulty", "metadata",
        "manual_review_expected", "skill_name", "version", "$schema", "should_trigger", "files",
        "prompt", "query", "input", "expected_output", "comment",
    }
)  # fmt: skip
_JUDGED = ("expected_behavior", "success_criteria", "assertions", "expectations", "checks")
_VERBS = {
    **dict.fromkeys(("regex", "matches"), "matches"),
    **dict.fromkeys(("not_regex", "regex_absent"), "does not match"),
    **dict.fromkeys(("contains", "includes"), "contains"),
    **dict.fromkeys(("not_contains", "contains_not"), "does not contain"),
}
_WORDS = ("description", "text", "assertion", "criterion", "statement", "check", "expectation")


class EvalsError(ValueError):
    """Unusable file; the message names it, and the line of an error in its JSON."""


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


@dataclass(frozen=True, slots=True)
class Case:
    """One eval."""

    id: str
    """Id in the file, else the number from 1."""
    prompt: str
    expected: str = ""
    """Description of the expected answer."""
    statements: tuple[Statement, ...] = ()
    files: tuple[str, ...] = ()
    """Paths relative to the skill's folder, with ``/``."""
    should_trigger: bool | None = None
    """Whether the skill should be loaded, for a trigger query."""

    @property
    def kind(self) -> str:
        """``trigger``, ``graded`` (a model judges a statement) or ``scripted``."""
        if self.should_trigger is not None:
            return "trigger"
        return "graded" if any(each.judged for each in self.statements) else "scripted"

    @property
    def slug(self) -> str:
        """Name of the item: the id and the first words of the prompt."""
        words = re.sub(r"[^a-z0-9]+", "-", f"{self.id} {self.prompt}".lower()).strip("-")
        return words[:_SLUG].strip("-") or "eval"


def read_evals(path: Path, folder: Path, warn: Callable[[str], None]) -> list[Case]:
    """Read the evals of a file.

    Args:
        path: ``evals.json`` or ``eval_queries.json``.
        folder: the skill's folder, which holds the files of evals.
        warn: called at most twice: with the ignored parts, and with the skipped evals and why (no
            prompt, nothing to grade, an invalid pattern, a file that is missing or outside of the
            skill's folder).

    Raises:
        EvalsError: the whole file is unusable: unknown format, broken JSON or too many evals.
    """
    found = _json_of(path)
    name, rows = _rows(found, path)
    if len(rows) > MOST:
        raise EvalsError(
            f"{path} has {len(rows):,} evals, and at most {MOST:,} are allowed: split the file"
        )
    unknown = sorted(found.keys() - _IGNORED - {name}) if name else []
    aside = [f"the key {key!r} of the file" for key in unknown]
    cases: list[Case] = []
    out: list[str] = []
    for number, row in enumerate(rows, 1):
        try:
            cases.append(_case(row, number, path.parent, folder, aside.append))
        except (ValueError, OSError, RuntimeError) as error:
            out.append(f"eval {number}: {getattr(error, 'strerror', None) or error}")
    if aside:
        warn(f"{path}: unknown and ignored: {_first([*dict.fromkeys(aside)])}")
    if out:
        count = f"{len(out)} of {len(rows)} evals are skipped"
        warn(f"{path}: {count}: {_first(out)}")
    return cases


def _json_of(path: Path) -> Any:
    try:
        text = read_bounded(path, _MOST_BYTES).decode("utf-8-sig")
    except SkillError as error:
        raise EvalsError(str(error)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise EvalsError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        return parsed(text)
    except ValueError as error:  # a ValueError: a number of 5,000 digits
        line = getattr(error, "lineno", 1)
        said = getattr(error, "msg", None) or str(error).partition(":")[0]
        raise EvalsError(f"{path}:{line}: this is not JSON: {said}") from None


def _first(said: Sequence[str]) -> str:
    more = f"; and {len(said) - _MOST_SAID} more" if len(said) > _MOST_SAID else ""
    return "; ".join(said[:_MOST_SAID]) + more


def _rows(found: Any, path: Path) -> tuple[str, list[Any]]:
    """Find the list of evals and its key; the key is empty for a list at the top level."""
    if isinstance(found, list):
        return "", found
    name = next((n for n in _LISTS if isinstance(found, dict) and n in found), "")
    if not name or not isinstance(found[name], list):
        raise EvalsError(f"{path}:1: there is no list of evals, at the top level or under 'evals'")
    return name, found[name]


def _case(row: Any, number: int, beside: Path, folder: Path, aside: Callable[[str], None]) -> Case:
    """Read one eval; call ``aside`` with each part that is ignored.

    Raises:
        ValueError, OSError, RuntimeError: the eval is unusable.
    """
    if not isinstance(row, dict):
        raise ValueError(f"{json.dumps(row)[:40]} is not an object")
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half of a character (\\ud800...)") from None
    prompt = next((row[k] for k in ("prompt", "query", "input") if row.get(k)), None)
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError("it has no prompt (a text under 'prompt' or 'query')")
    identity = row.get("id")
    named = number if identity is None else identity
    wanted = row.get("expected_output")
    expected = "" if wanted is None else _text(wanted).strip()
    trigger = row.get("should_trigger")
    if trigger is not None and not isinstance(trigger, bool):
        raise ValueError(f"'should_trigger' is {trigger!r}, neither true nor false")
    known = _IGNORED | {*_JUDGED, "scorers", "must_have", "must_not_have"}
    for key in sorted(row.keys() - known):
        aside(f"the key {key!r}")
    statements = tuple(_statements(row, aside))
    if not statements and expected:
        said = f"The answer agrees in substance with the expected answer: {expected}"
        statements = (Statement(said),)
    if not statements and trigger is None:
        raise ValueError("it has no statement about a good answer")
    files = tuple(_files(row.get("files") or [], beside, folder))
    return Case(str(named), prompt, expected, statements, files, trigger)


def _statements(row: dict[str, Any], aside: Callable[[str], None]) -> Iterator[Statement]:
    for key in (*_JUDGED, "scorers"):
        for element in _listed(row.get(key)):
            if isinstance(element, str) and element.strip():
                yield Statement(element.strip())
            elif isinstance(element, dict):
                yield from _object(element, aside)
            else:
                raise ValueError(f"{key!r} holds {json.dumps(element)[:40]}: a text is expected")
    yield from _patterns(row, "must_have", "matches")
    yield from _patterns(row, "must_not_have", "does not match")


def _patterns(row: dict[str, Any], key: str, verb: str) -> Iterator[Statement]:
    for element in _listed(row.get(key)):
        if not isinstance(element, str):
            raise ValueError(f"{key!r} may hold only regular expressions")
        yield pattern(verb, element)


def _object(element: dict[str, Any], aside: Callable[[str], None]) -> Iterator[Statement]:
    name = element.get("name")
    words = next((element[k] for k in _WORDS if isinstance(element.get(k), str)), "")
    verb = _VERBS.get(str(element.get("type", "")).lower().replace("-", "_"))
    value = next((element[k] for k in ("pattern", "value", "regex") if k in element), None)
    values = [_text(each) for each in _listed(value)]
    if verb and values:
        yield from (pattern(verb, each, words) for each in values)
    elif said := words.strip() or (name.strip() if isinstance(name, str) else ""):
        yield Statement(said)
    else:
        aside(f"the statement {json.dumps(element)[:60]}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _files(given: Any, beside: Path, folder: Path) -> Iterator[str]:
    """Yield files by path from the skill's folder; given paths may start at the evals' folder."""
    for element in given if isinstance(given, list) else [given]:
        name = element.get("path") if isinstance(element, dict) else element
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"'files' holds {json.dumps(element)[:40]}: a path is expected")
        top = folder.resolve()
        places = [(base / name).resolve() for base in (folder, beside)]
        inside = [place for place in places if place.is_relative_to(top) and place != top]
        if not inside:
            raise ValueError(f"the file {name!r} is outside of the skill's folder")
        there = [place for place in inside if place.is_file() or place.is_dir()]
        if not there:
            raise ValueError(f"there is no file {name!r} in {folder}")
        yield there[0].relative_to(top).as_posix()
