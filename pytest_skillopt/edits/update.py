"""Update: apply selected edits to make the candidate, and refuse forbidden ones.

An update stage answers with a document. If the edits that it names make exactly that document, they
are tried; if not, the difference to the working skill is the edit.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_skillopt.edits.context import numbered
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.skill.document import SkillError, split_lines, to_lf
from pytest_skillopt.skill.edits import Edit, apply

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_skillopt.edits.combine import Patch
    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.skill.document import Document


@dataclass(frozen=True, slots=True)
class Update:
    """The candidate, its edits, and the refused ones."""

    document: Document
    applied: tuple[Edit, ...] = ()
    refused: tuple[Refusal, ...] = ()
    note: str = ""


def update(patch: Patch, context: Context) -> Update:
    """Apply each edit of the patch exactly, or refuse it with a reason.

    Edits that copy words of a train task are sent back once for the rules behind them.
    """
    first = apply_each(context.document, patch.edits, context)
    leaking = [refusal for refusal in first.refused if refusal.terms]
    if not leaking:
        return first
    named = (f"- edit {i}: {', '.join(refusal.terms)}" for i, refusal in enumerate(leaking))
    answer = context.ask(
        "update",
        "generalise",
        context.form,
        ("Edits", numbered([refusal.edit for refusal in leaking])),
        ("Terms to do without", "\n".join(named)),
    )
    rules = [
        replace(refusal.edit, op=form.op, target=form.target, content=form.content)
        for refusal, form in zip(leaking, answer.edits if answer else (), strict=False)
    ]
    again = apply_each(first.document, rules, context)
    kept = [refusal for refusal in first.refused if not (rules and refusal.terms)]
    return Update(again.document, first.applied + again.applied, (*kept, *again.refused))


def apply_each(document: Document, edits: Sequence[Edit], context: Context) -> Update:
    """Apply edits one after the other; leave out those that the checks refuse."""
    applied, refused = [], []
    for edit in edits:
        result = context.vetting.try_edit(document, edit)
        if isinstance(result, Refusal):
            refused.append(result)
        else:
            document = result
            applied.append(edit)
    return Update(document, tuple(applied), tuple(refused))


def rebuild(base: Document, edits: Iterable[Edit]) -> Document | None:
    """Apply edits without checks; None if one of them does not fit."""
    with contextlib.suppress(SkillError):
        return functools.reduce(apply, edits, base)
    return None


def findable(edit: Edit, document: Document) -> Edit:
    """Return the edit, as one that appends if its target is not in the document."""
    stands = to_lf(edit.target.strip()) in to_lf(document.file(edit.file).text)
    if stands or edit.op in ("append", "delete"):
        return edit
    return replace(edit, op="append", target="")


def as_edits(update: Update, asked: Edit, context: Context) -> Update:
    """Give an update edits that make its document from the working skill, the context's.

    The difference gets the tasks of ``asked``, the edit that the stage was given.
    """
    before, after = context.document, update.document
    if rebuild(before, update.applied) == after:
        return update
    if after == before:
        return replace(update, applied=())
    checked = context.vetting.check(before, after, asked)
    if isinstance(checked, Refusal):
        return replace(update, applied=(), refused=(*update.refused, checked))
    edit = edit_between(before, after)
    if edit is None:
        why = (
            "no single edit makes the document of the update stage; "
            "--skillopt-search=batch accepts it as it is"
        )
        return replace(update, applied=(), refused=(*update.refused, Refusal(asked, why)))
    made = replace(asked, op=edit.op, target=edit.target, content=edit.content)
    return replace(update, applied=(made,))


def edit_between(before: Document, after: Document) -> Edit | None:
    """Find an edit that turns ``before`` into ``after``, up to blank lines and trailing blanks.

    Several changed places become one replacement from the first to the last. None if no edit may
    do it, as in the frontmatter and in protected regions.
    """
    if before.files != after.files:
        return None
    wanted = _lines(after)
    for edit in _candidates(split_lines(to_lf(before.text)), split_lines(to_lf(after.text))):
        with contextlib.suppress(SkillError):
            if _lines(apply(before, edit)) == wanted:
                return edit
    return None


def _lines(document: Document) -> list[str]:
    return [line.rstrip() for line in to_lf(document.text).split("\n") if line.strip()]


def _candidates(old: Sequence[str], new: Sequence[str]) -> Iterator[Edit]:
    """Yield edits that may turn the old lines into the new, the smallest first."""
    first = _common(old, new)
    last = _common(old[first:][::-1], new[first:][::-1])
    removed, added = old[first : len(old) - last], new[first : len(new) - last]
    if not "".join(removed).strip():
        yield Edit("append", content=_text(added))
        above = next((line for line in reversed(old[:first]) if line.strip()), "")
        yield Edit("insert_after", target=_text([above]), content=_text(added))
    if not "".join(added).strip():
        yield Edit("delete", target=_text(removed))
    # Add surrounding lines until the target is unique in the document.
    for context in range(len(old) + 1):
        start, stop = max(0, first - context), min(len(old), len(old) - last + context)
        target = _text(old[start:stop])
        yield Edit("replace", target, _text(new[start : len(new) - (len(old) - stop)]))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Count the equal lines at the start."""
    pairs = zip(one, other, strict=False)
    differ = (number for number, (a, b) in enumerate(pairs) if a.rstrip() != b.rstrip())
    return next(differ, min(len(one), len(other)))


def _text(lines: Sequence[str]) -> str:
    return "".join(lines).strip("\n")
