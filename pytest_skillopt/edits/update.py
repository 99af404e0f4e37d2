"""Update: apply selected edits to make the candidate, and refuse forbidden ones.

An update stage answers with a version and the edits that make it.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_skillopt.edits.context import numbered
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.skill.edits import Edit, apply
from pytest_skillopt.skill.text import SkillError, to_lf
from pytest_skillopt.skill.version import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.edits.combine import Patch
    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.skill.version import Version


@dataclass(frozen=True, slots=True)
class Update:
    """The candidate, its edits, and the refused ones."""

    version: Version
    applied: tuple[Edit, ...] = ()
    refused: tuple[Refusal, ...] = ()
    note: str = ""


def update(patch: Patch, context: Context) -> Update:
    """Apply each edit of the patch exactly, or refuse it with a reason.

    Edits that copy words of a train task are sent back once for the rules behind them.
    """
    first = apply_each(context.version, patch.edits, context)
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
    forms = answer.edits if answer else ()
    rules = [
        replace(refusal.edit, op=form.op, target=form.target, content=form.content)
        for refusal, form in zip(leaking, forms, strict=False)
    ]
    again = apply_each(first.version, rules, context)
    kept = [refusal for refusal in first.refused if not (rules and refusal.terms)]
    return Update(again.version, first.applied + again.applied, (*kept, *again.refused))


def apply_each(version: Version, edits: Sequence[Edit], context: Context) -> Update:
    """Apply edits one after the other; leave out those that the checks refuse."""
    applied = []
    refused = []
    for edit in edits:
        result: Version | Refusal = Refusal(edit, "an edit before it replaces the description")
        if edit.field == "body" or version.main.same_frontmatter(context.version.main):
            result = context.vetting.try_edit(version, edit)
        if isinstance(result, Refusal):
            refused.append(result)
        else:
            version = result
            applied.append(edit)
    return Update(version, tuple(applied), tuple(refused))


def rebuild(base: Version, edits: Iterable[Edit]) -> Version | None:
    """Apply edits without checks; None if one of them does not fit."""
    with contextlib.suppress(SkillError):
        return functools.reduce(apply, edits, base)
    return None


def findable(edit: Edit, version: Version) -> Edit:
    """Return the edit, as one that appends if its target is not in its file."""
    stands = to_lf(edit.target.strip()) in to_lf(version.get(edit.file, EMPTY).text)
    if stands or edit.op in ("append", "delete"):
        return edit
    return replace(edit, op="append", target="")


def check_update(update: Update, asked: Edit, context: Context) -> Update:
    """Refuse an update whose edits do not make its version from the working skill, the context's.

    ``asked`` is the edit that the stage was given.
    """
    if rebuild(context.version, update.applied) == update.version:
        return update
    why = (
        "the edits of the update stage do not make its document; --skillopt-search=batch accepts "
        "that as it is"
    )
    return replace(update, applied=(), refused=(*update.refused, Refusal(asked, why)))
