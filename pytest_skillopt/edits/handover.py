"""What an update stage hands over, as edits that can be tried one by one.

The stage answers with a document. Where the edits that it names make just that document, they are
what is tried; where they do not, the stage made the document in its own way, and the difference to
the working skill is the edit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_skillopt.edits.compose import rebuild, reminders_of, set_reminders
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.skill.difference import edit_between
from pytest_skillopt.skill.document import SkillError
from pytest_skillopt.skill.edits import Edit

if TYPE_CHECKING:
    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.proposals import Proposal
    from pytest_skillopt.edits.update import Update
    from pytest_skillopt.skill.document import Document


def as_edits(update: Update, asked: Proposal, context: Context) -> Update:
    """The update with edits that make its document out of the working skill.

    Args:
        update: the answer of the stage.
        asked: the proposal that the stage was given; its tasks are those of the difference.
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
    return replace(update, applied=(replace(asked, edit=edit),))


def _of_the_appendix(before: Document, after: Document) -> Edit | None:
    """The replacement of all reminders, where nothing but them has changed."""
    lines = reminders_of(after)
    try:
        if not lines or set_reminders(before, lines) != after:
            return None
    except SkillError:
        return None
    return Edit("replace", "\n".join(reminders_of(before)), "\n".join(lines))
