"""Update: apply the selected patch to make the candidate, and refuse forbidden edits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_skillopt.edits.context import numbered
from pytest_skillopt.edits.vetting import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.patches import Patch
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit


@dataclass(frozen=True, slots=True)
class Update:
    """The candidate, its edits, and the refused ones."""

    document: Document
    applied: tuple[Edit, ...] = ()
    refused: tuple[Refusal, ...] = ()
    note: str = ""


def update(patch: Patch, context: Context) -> Update:
    """Apply each edit of the patch exactly, or refuse it with a reason.

    Edits that copy words of a train task are sent back once to be generalised.
    """
    first = _apply_each(context.document, patch.edits, context)
    leaking = [refusal for refusal in first.refused if refusal.terms]
    if not leaking:
        return first
    again = _apply_each(first.document, generalise(leaking, context), context)
    kept = tuple(refusal for refusal in first.refused if not refusal.terms)
    unanswered = tuple(leaking) if not (again.applied or again.refused) else ()
    return Update(again.document, first.applied + again.applied, kept + unanswered + again.refused)


def generalise(leaking: Sequence[Refusal], context: Context) -> list[Edit]:
    """Ask once for the rules behind edits that carry words of a task; drop unanswered ones."""
    named = "\n".join(
        f"- edit {i}: {', '.join(refusal.terms)}" for i, refusal in enumerate(leaking)
    )
    answer = context.ask(
        "update",
        "generalise",
        context.form,
        ("Edits", numbered([refusal.edit for refusal in leaking])),
        ("Terms to do without", named),
    )
    if answer is None:
        return []
    return [
        replace(refusal.edit, op=form.op, target=form.target, content=form.content)
        for refusal, form in zip(leaking, answer.edits, strict=False)
    ]


def _apply_each(document: Document, edits: Sequence[Edit], context: Context) -> Update:
    applied, refused = [], []
    for edit in edits:
        result = context.vetting.try_edit(document, edit)
        if isinstance(result, Refusal):
            refused.append(result)
        else:
            document = result
            applied.append(edit)
    return Update(document, tuple(applied), tuple(refused))
