"""Update: make the candidate out of the selected patch, refusing what may not be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_skillopt.edits.material import numbered
from pytest_skillopt.edits.vetting import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.edits.material import Context
    from pytest_skillopt.edits.patches import Patch
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit


@dataclass(frozen=True, slots=True)
class Update:
    """The candidate, what made it, and what was left out."""

    document: Document
    applied: tuple[Edit, ...] = ()
    refused: tuple[Refusal, ...] = ()
    note: str = ""


def update(patch: Patch, context: Context) -> Update:
    """Apply the edits of the patch one after the other, each exactly, or refuse it with the reason.

    Those that take words over from a train task are sent back once with the request to generalise.
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
    """Ask once for the rules behind edits that carry words of a task; unanswered ones are gone."""
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
