"""Update: make the candidate out of the selected patch, refusing what may not be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_skillopt.edits.calls import Body, Edits, Question
from pytest_skillopt.edits.material import material, numbered, quote
from pytest_skillopt.edits.patches import whole_body
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.skill.document import SkillError
from pytest_skillopt.skill.edits import rewrite_body

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.edits.material import Context
    from pytest_skillopt.edits.patches import Patch
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit

_BODY_CHARS = 60_000


@dataclass(frozen=True, slots=True)
class Update:
    """The candidate, what made it, and what was left out."""

    document: Document
    applied: tuple[Edit, ...] = ()
    refused: tuple[Refusal, ...] = ()
    note: str = ""


def update(patch: Patch, context: Context) -> Update:
    """Apply the patch in the update mode of the settings.

    Every edit is applied exactly or refused with the reason. An edit or a body that takes words
    over from a train task is sent back once with the request to generalise.
    """
    edits = [p for p in patch.edits if p.origin != "appendix"]
    reminders = [p for p in patch.edits if p.origin == "appendix"]
    if patch.body is not None:
        result = _rewritten(patch.body, edits, context)
    elif edits and context.settings.update_mode == "rewrite_from_suggestions":
        result = _rewrite_from(edits, context)
    else:
        result = apply_all(edits, context)
    if not reminders:
        return result
    return _with_reminders(result, reminders, context)


def apply_all(edits: Sequence[Edit], context: Context) -> Update:
    """Apply one after the other; what leaks comes back once in general terms."""
    first = _apply_each(context.document, edits, context)
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
    prompts = context.calls.prompts
    answer = context.calls.ask_one(
        Question(
            "update",
            f"{context.label}/generalise/{context.draw}",
            f"{prompts.render('generalise')}\n\n{prompts.render('answer_edits')}",
            material(
                context,
                ("Edits", numbered([refusal.edit for refusal in leaking])),
                ("Terms to do without", named),
            ),
            Edits,
        )
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


def _rewrite_from(suggestions: Sequence[Edit], context: Context) -> Update:
    """One rewrite of the body that follows all the suggestions."""
    answer = context.calls.ask_one(
        Question(
            "update",
            f"{context.label}/rewrite/{context.draw}",
            context.calls.prompts.render("rewrite"),
            material(context, ("Suggestions", numbered(suggestions))),
            Body,
        )
    )
    if answer is None:
        fallback = apply_all(suggestions, context)
        return replace(fallback, note="the rewrite was unreadable; the edits were applied instead")
    return _rewritten(answer.body, suggestions, context)


def _rewritten(body: str, edits: Sequence[Edit], context: Context) -> Update:
    """A whole new body; frontmatter and protected regions stay by construction."""
    made = tuple(edits) or (whole_body(step=context.step),)
    result = _try_body(body, made[0], context)
    if isinstance(result, Refusal) and result.terms:
        result = _generalise_body(body, result, context)
    if isinstance(result, Refusal):
        refused = tuple(replace(result, edit=p, terms=()) for p in made)
        return Update(context.document, refused=refused)
    return Update(result, made)


def _try_body(body: str, edit: Edit, context: Context) -> Document | Refusal:
    try:
        document = rewrite_body(context.document, body)
    except SkillError as error:
        return Refusal(edit, str(error))
    return context.vetting.check(context.document, document, edit)


def _generalise_body(body: str, refusal: Refusal, context: Context) -> Document | Refusal:
    """Ask once for the body without the words of a task; the refusal stands without an answer."""
    answer = context.calls.ask_one(
        Question(
            "update",
            f"{context.label}/generalise_rewrite/{context.draw}",
            context.calls.prompts.render("generalise_rewrite"),
            material(
                context,
                ("Body", quote(body, _BODY_CHARS)),
                ("Terms to do without", quote("\n".join(refusal.terms))),
            ),
            Body,
        )
    )
    return refusal if answer is None else _try_body(answer.body, refusal.edit, context)


def _with_reminders(result: Update, reminders: Sequence[Edit], context: Context) -> Update:
    from pytest_skillopt.published.skill_aware import add_reminders

    document, note = add_reminders(result.document, reminders, context)
    if document == result.document:
        return replace(result, note="; ".join(filter(None, (result.note, note))))
    checked = context.vetting.check(result.document, document, reminders[0])
    if isinstance(checked, Refusal):
        refused = tuple(Refusal(p, checked.why) for p in reminders)
        return replace(result, refused=(*result.refused, *refused))
    return Update(
        document,
        (*result.applied, *reminders),
        result.refused,
        "; ".join(filter(None, (result.note, note))),
    )
