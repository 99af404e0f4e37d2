"""Documents out of accepted proposals of every kind, for leaving some out or adding one more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.skill.document import SkillError
from pytest_skillopt.skill.edits import apply, get_block, set_block

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.proposals import Proposal
    from pytest_skillopt.skill.document import Document

GUIDANCE = "guidance"
"""The block that a slow update writes."""
REMINDERS = "reminders"
"""The block of the appendix."""


def extend(document: Document, proposal: Proposal, context: Context) -> Document | Refusal:
    """The document with one more proposal, after all checks, or why it may not be."""
    if proposal.origin not in ("slow", "appendix"):
        return context.vetting.try_edit(document, proposal)
    try:
        after = _with_block(document, proposal)
    except SkillError as error:
        return Refusal(proposal, str(error))
    threshold = context.settings.appendix_threshold
    if len(reminders_of(after)) > max(threshold, len(reminders_of(document))):
        return Refusal(proposal, f"the appendix holds {threshold} reminders already")
    if after == document:
        return Refusal(proposal, "the document says it already")
    return context.vetting.check(document, after, proposal)


def rebuild(base: Document, lines: Iterable[Proposal]) -> Document | None:
    """The base with these proposals, unchecked; None where one of them does not fit."""
    document = base
    for line in lines:
        try:
            applied = (
                _with_block(document, line)
                if line.origin in ("slow", "appendix")
                else _with_edit(document, line)
            )
        except SkillError:
            return None
        document = applied
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


def _with_block(document: Document, proposal: Proposal) -> Document:
    text = proposal.edit.content.strip()
    if proposal.origin == "slow":
        return set_block(document, GUIDANCE, text)
    if proposal.edit.op == "replace":
        return _with_reminders(document, proposal.edit.target, text)
    line = " ".join(text.split())
    return set_reminders(document, dict.fromkeys([*reminders_of(document), line]))


def _with_reminders(document: Document, target: str, content: str) -> Document:
    """The appendix with other reminders, if it still holds those that they were made of."""
    if "\n".join(reminders_of(document)) != target:
        raise SkillError("the appendix has changed since its reminders were consolidated")
    return set_reminders(document, content.split("\n"))


def _with_edit(document: Document, proposal: Proposal) -> Document:
    applied = apply(document, (proposal.edit,))
    if applied.refused:
        raise SkillError(applied.refused[0].why)
    return applied.document
