"""The appendix: reminders for lapses in following the skill, kept apart from its rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.edits.calls import Question, Reminders
from pytest_skillopt.edits.compose import reminders_of, set_reminders
from pytest_skillopt.edits.material import material, quote
from pytest_skillopt.skill.document import SkillError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.edits.material import Context
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit


def add_reminders(
    document: Document, reminders: Sequence[Edit], context: Context
) -> tuple[Document, str]:
    """The document with the reminders in its appendix, and a note on what went wrong.

    Above ``appendix_threshold`` lines the list is consolidated in one call; where that fails, the
    oldest lines give way.
    """
    new = [" ".join(p.content.split()) for p in reminders]
    lines = list(dict.fromkeys([*reminders_of(document), *new]))
    limit = context.settings.appendix_threshold
    note = ""
    if len(lines) > limit:
        lines, note = _consolidate(lines, limit, context)
    try:
        return set_reminders(document, lines), note
    except SkillError as error:
        return document, f"the reminders were not added: {error}"


def _consolidate(lines: list[str], limit: int, context: Context) -> tuple[list[str], str]:
    answer = context.calls.ask_one(
        Question(
            "update",
            f"{context.label}/appendix/{context.draw}",
            context.calls.prompts.render("appendix", limit=limit),
            material(context, ("Reminders", quote("\n".join(f"- {line}" for line in lines)))),
            Reminders,
        )
    )
    merged = [" ".join(line.split()) for line in answer.reminders] if answer else []
    if merged:
        return merged[:limit], ""
    return lines[-limit:], "the appendix could not be consolidated; its oldest reminders gave way"
