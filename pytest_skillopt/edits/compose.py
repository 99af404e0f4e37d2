"""Documents out of edits, for leaving some out or adding one more, and the way back.

An update stage answers with a document. Where the edits that it names make just that document, they
are what is tried; where they do not, the stage made the document in its own way, and the difference
to the working skill is the edit.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.skill.document import SkillError, split_lines, to_lf
from pytest_skillopt.skill.edits import Edit, apply, get_block, set_block

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_skillopt.edits.material import Context
    from pytest_skillopt.edits.update import Update
    from pytest_skillopt.skill.document import Document

GUIDANCE = "guidance"
"""The block that a slow update writes."""
REMINDERS = "reminders"
"""The block of the appendix."""


def extend(document: Document, edit: Edit, context: Context) -> Document | Refusal:
    """The document with one more edit, after all checks, or why it may not be."""
    if edit.origin not in ("slow", "appendix"):
        return context.vetting.try_edit(document, edit)
    try:
        after = _with_block(document, edit)
    except SkillError as error:
        return Refusal(edit, str(error))
    threshold = context.settings.appendix_threshold
    if len(reminders_of(after)) > max(threshold, len(reminders_of(document))):
        return Refusal(edit, f"the appendix holds {threshold} reminders already")
    if after == document:
        return Refusal(edit, "the document says it already")
    return context.vetting.check(document, after, edit)


def rebuild(base: Document, lines: Iterable[Edit]) -> Document | None:
    """The base with these edits, unchecked; None where one of them does not fit."""
    document = base
    for line in lines:
        try:
            if line.origin in ("slow", "appendix"):
                document = _with_block(document, line)
            else:
                document = apply(document, line)
        except SkillError:
            return None
    return document


def reminders_of(document: Document) -> list[str]:
    """The lines of the appendix, without their bullets."""
    lines = get_block(document, REMINDERS).split("\n")
    return [line.removeprefix("- ") for line in lines if line.strip()]


def set_reminders(document: Document, lines: Iterable[str]) -> Document:
    """Raises:
    SkillError: the block has no place in the document.
    """
    return set_block(document, REMINDERS, "\n".join(f"- {line}" for line in lines))


def _with_block(document: Document, edit: Edit) -> Document:
    text = edit.content.strip()
    if edit.origin == "slow":
        return set_block(document, GUIDANCE, text)
    if edit.op == "replace":
        return _with_reminders(document, edit.target, text)
    line = " ".join(text.split())
    return set_reminders(document, dict.fromkeys([*reminders_of(document), line]))


def _with_reminders(document: Document, target: str, content: str) -> Document:
    """The appendix with other reminders, if it still holds those that they were made of."""
    if "\n".join(reminders_of(document)) != target:
        raise SkillError("the appendix has changed since its reminders were consolidated")
    return set_reminders(document, content.split("\n"))


_MOST_CONTEXT = 12
"""Unchanged lines that a target may take in so that it stands once in the document."""


def as_edits(update: Update, asked: Edit, context: Context) -> Update:
    """The update with edits that make its document out of the working skill.

    Args:
        update: the answer of the stage.
        asked: the edit that the stage was given; its tasks are those of the difference.
        context: that of the call; its document is the working skill.
    """
    before, after = context.document, update.document
    if rebuild(before, update.applied) == after:
        return update
    if after == before:
        return replace(update, applied=())
    checked = context.vetting.check(before, after, asked)
    if isinstance(checked, Refusal):
        return replace(update, applied=(), refused=(*update.refused, checked))
    edit = _of_the_appendix(before, after) or edit_between(before, after)
    if edit is None:
        why = (
            "the document that the update stage made cannot be had by one edit; "
            "--skillopt-search=batch takes it as it is"
        )
        return replace(update, applied=(), refused=(*update.refused, Refusal(asked, why)))
    made = replace(asked, op=edit.op, target=edit.target, content=edit.content)
    return replace(update, applied=(made,))


def _of_the_appendix(before: Document, after: Document) -> Edit | None:
    """The replacement of all reminders, where nothing but them has changed."""
    lines = reminders_of(after)
    try:
        if not lines or set_reminders(before, lines) != after:
            return None
    except SkillError:
        return None
    return Edit("replace", "\n".join(reminders_of(before)), "\n".join(lines))


def edit_between(before: Document, after: Document) -> Edit | None:
    """An edit that turns ``before`` into ``after``, blank lines and trailing blanks aside.

    Several changed places become one replacement that reaches from the first to the last. None
    where no edit may do it, as in the frontmatter and in protected regions.
    """
    wanted = _lines(after)
    for edit in _candidates(split_lines(to_lf(before.text)), split_lines(to_lf(after.text))):
        with contextlib.suppress(SkillError):
            if _lines(apply(before, edit)) == wanted:
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
