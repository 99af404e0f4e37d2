"""The one edit that makes a document out of another, for a change that came without edits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.skill.document import split_lines, to_lf
from pytest_skillopt.skill.edits import Edit, apply

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_skillopt.skill.document import Document

_MOST_CONTEXT = 12
"""Unchanged lines that a target may take in so that it stands once in the document."""


def edit_between(before: Document, after: Document) -> Edit | None:
    """An edit that turns ``before`` into ``after``, blank lines and trailing blanks aside.

    Several changed places become one replacement that reaches from the first to the last. None
    where no edit may do it, as in the frontmatter and in protected regions.
    """
    wanted = _lines(after)
    for edit in _candidates(split_lines(to_lf(before.text)), split_lines(to_lf(after.text))):
        applied = apply(before, (edit,))
        if applied.applied and _lines(applied.document) == wanted:
            return edit
    return None


def _lines(document: Document) -> list[str]:
    return [line.rstrip() for line in to_lf(document.text).split("\n") if line.strip()]


def _candidates(old: Sequence[str], new: Sequence[str]) -> Iterator[Edit]:
    """Edits that may do it, those that say least first."""
    first = _common(old, new)
    last = _common(old[first:][::-1], new[first:][::-1])
    gone, added = old[first : len(old) - last], new[first : len(new) - last]
    if not "".join(gone).strip():
        yield Edit("append", content=_text(added))
        above = next((line for line in reversed(old[:first]) if line.strip()), "")
        yield Edit("insert_after", target=_text([above]), content=_text(added))
    if not "".join(added).strip():
        yield Edit("delete", target=_text(gone))
    for context in (*range(_MOST_CONTEXT + 1), len(old)):
        start, stop = max(0, first - context), min(len(old), len(old) - last + context)
        target = _text(old[start:stop])
        yield Edit("replace", target, _text(new[start : len(new) - (len(old) - stop)]))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Number of equal lines at the start."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a.rstrip() != b.rstrip():
            break
        count += 1
    return count


def _text(lines: Sequence[str]) -> str:
    return "".join(lines).strip("\n")
