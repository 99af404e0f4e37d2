"""Reading the prompt of an optimizer: the document, the failures, the edits on the table.

Only the shape of the prompt is relied on (headings, data between marks, words like ``expected``),
so that reworded templates are still understood.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from typing import Any

from simulation.language import strip_frontmatter

_DATA = re.compile(r"\[data (\w+)\]\n(.*?)\n?\[end of data \1\]", re.DOTALL)
_SECTION = re.compile(r"^# (.+)$", re.MULTILINE)
_TASK = re.compile(r"^## Task \d+.*$", re.MULTILINE)
_EDIT = re.compile(r"^## (?:Edit|Suggestion) (\d+)(?:: (\w+))?.*$", re.MULTILINE)
_BODY = re.compile(r"^## Body \d+.*$", re.MULTILINE)
_ABOUT = re.compile(r"^About: (.+?)(?=\n\n|\n###|\Z)", re.MULTILINE | re.DOTALL)
_BUDGET = re.compile(
    r"(?:at most|Choose the|the) (\d+) (?:edits|changes|reminders|that)|at most (\d+)\b"
)
_SUPPORT = re.compile(r"\bsupport (\d+)")
_VALUE = r"(?P<{0}>\{{[^{{}}]*\}}|'[^']*'|\"[^\"]*\"|-?[\d.]+|None|null|True|False|no such key)"
_COMPARED = tuple(
    re.compile(pattern)
    for pattern in (
        rf"expected:? {_VALUE.format('want')},? (?:but )?(?:got|was):? {_VALUE.format('got')}",
        rf"got:? {_VALUE.format('got')},? (?:but )?expected:? {_VALUE.format('want')}",
        rf"(?:assert|E) +{_VALUE.format('got')} (?:==|is) {_VALUE.format('want')}",
        rf"{_VALUE.format('got')} != {_VALUE.format('want')}",
    )
)
_FIELD = re.compile(
    r"(?:^|\n|: |`)([A-Za-z][\w ]{1,30}?)`?(?: of a[^:\n]{0,30})?(?: is not [^:\n]{0,40})?: "
    r"(?=expected|got)"
)
_KEY = re.compile(r"\[['\"](\w+)['\"]\]")
_ASKED = re.compile(r"Extract [^.\n]*?`(\w+)`(?! and)")


@dataclass(frozen=True, slots=True)
class Failure:
    """One compared value of a failed task: what it was about, what was wanted and what came."""

    about: str
    field: str
    want: Any
    got: Any
    evidence: str
    """The task's whole section, transcript included."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A numbered edit of the prompt."""

    number: int
    op: str
    target: str
    content: str
    support: int
    from_failures: bool


@dataclass(frozen=True, slots=True)
class Brief:
    """An optimizer's prompt, taken apart."""

    document: str
    body: str
    failures: tuple[Failure, ...]
    abouts: tuple[str, ...]
    """What the failed tasks are about, in the words of their docstrings."""
    suggestions: tuple[Suggestion, ...]
    bodies: tuple[str, ...]
    tried: str
    """What was tried before, as text."""
    reminders: tuple[str, ...]
    """Reminders that are to be merged."""
    forbidden: str
    """Terms that edits have to do without."""
    budget: int
    instructions: str


def read_brief(text: str) -> Brief:
    """Take the text of all messages apart."""
    sections = _sections(text)
    document = _data(sections.get("The document", ""))
    rollouts = "\n".join(v for k, v in sections.items() if k.startswith("Rollouts"))
    tasks = [part for part in _split(_TASK, rollouts) if "that failed" in part or "assert" in part]
    failures = [f for part in tasks for f in _failures(part)]
    found = _BUDGET.search(sections.get("", text))
    return Brief(
        document=document,
        body=strip_frontmatter(document),
        failures=tuple(failures),
        abouts=tuple(dict.fromkeys(a for part in tasks if (a := _about(part)))),
        suggestions=tuple(_suggestions(text)),
        bodies=tuple(_data(part) for part in _split(_BODY, text)[1:]),
        tried=sections.get("Tried before", ""),
        reminders=tuple(re.findall(r"^- (.+)$", sections.get("Reminders", ""), re.MULTILINE)),
        forbidden=sections.get("Terms to do without", ""),
        budget=int(found[1] or found[2]) if found else 4,
        instructions=sections.get("", ""),
    )


def _sections(text: str) -> dict[str, str]:
    """Top-level sections by title, what stands before the first under an empty title.

    Headings inside quoted data belong to the data.
    """
    quoted = [match.span() for match in _DATA.finditer(text)]
    heads = [m for m in _SECTION.finditer(text) if not any(a < m.start() < b for a, b in quoted)]
    sections = {"": text[: heads[0].start()] if heads else text}
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        end = following.start() if following else len(text)
        sections.setdefault(head[1].strip(), text[head.end() : end])
    return sections


def _split(pattern: re.Pattern[str], text: str) -> list[str]:
    heads = [m.start() for m in pattern.finditer(text)]
    return [text[a:b] for a, b in zip([0, *heads], [*heads, len(text)], strict=True) if text[a:b]]


def _data(text: str) -> str:
    found = _DATA.search(text)
    return found[2] if found else text.strip()


def _about(part: str) -> str:
    found = _ABOUT.search(part)
    return " ".join(found[1].split()) if found else ""


def _failures(part: str) -> list[Failure]:
    head, mark, _ = part.partition("Transcript:")
    where = head if mark else part
    for pattern in _COMPARED:
        if found := pattern.search(where):
            want, got = _value(found["want"]), _value(found["got"])
            field = _field(where) or _first(_ASKED, part)
            return _differing(_about(part), field, want, got, part)
    return []


def _differing(about: str, field: str, want: Any, got: Any, part: str) -> list[Failure]:
    """One failure for a plain value, one for each differing member of an object."""
    if isinstance(want, dict) and isinstance(got, dict):
        keys = [key for key in want if want[key] != got.get(key, "")]
        return [Failure(about, str(key), want[key], got.get(key, ""), part) for key in keys]
    return [Failure(about, field, want, got, part)]


def _field(where: str) -> str:
    return _first(_KEY, where) or _first(_FIELD, where)


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found else ""


def _value(text: str) -> Any:
    if text == "null":
        return None
    if text == "no such key":
        return ""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return text


def _suggestions(text: str) -> list[Suggestion]:
    found = []
    for part in _split(_EDIT, text):
        head = _EDIT.match(part)
        if head is None:
            continue
        support = _SUPPORT.search(part)
        found.append(
            Suggestion(
                number=int(head[1]),
                op=head[2] or "append",
                target=_after("Target:", part),
                content=_after("Content:", part),
                support=int(support[1]) if support else 1,
                from_failures="success analysts" not in part,
            )
        )
    return found


def _after(label: str, part: str) -> str:
    _, mark, rest = part.partition(label)
    return _data(rest) if mark else ""
