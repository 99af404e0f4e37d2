"""What a proposal must pass before a single sample is spent on it: fit, size, lint, leaks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.skill.edits import apply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.optimizer.proposals import Proposal
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.suite.tasks import SkillTask

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A proposal that may not become part of the document, and why."""

    proposal: Proposal
    why: str
    terms: tuple[str, ...] = ()
    """Words taken over from a train task: it may come back once without them."""
    contamination: bool = False
    """The words are those of a val or test task, which the optimizer cannot have seen."""


class Vetting:
    """The checks, with what they need to know of the tasks and the settings."""

    def __init__(
        self, tasks: Sequence[SkillTask], *, allow: Sequence[str] = (), max_tokens: int = 0
    ) -> None:
        """Args:
        tasks: all tasks of the suite, the hidden ones too; nothing of them leaves this object
            but the words that a proposal holds already.
        allow: rules of the lint that do not apply.
        max_tokens: largest document, in tokens of about four characters; 0: no bound.
        """
        self._allow = tuple(allow)
        self._max_tokens = max_tokens

    def try_edit(self, document: Document, proposal: Proposal) -> Document | Refusal:
        """The document with the proposal, or why it may not be."""
        (row,) = (applied := apply(document, (proposal.edit,))).rows
        if not row.applied:
            return Refusal(proposal, row.why)
        if _repeats(document, proposal):
            return Refusal(proposal, "the document says it already")
        return self.check(document, applied.document, proposal)

    def check(self, before: Document, after: Document, proposal: Proposal) -> Document | Refusal:
        """Whether a change of the document may be, however it was made."""
        if self._max_tokens and after.tokens > max(self._max_tokens, before.tokens):
            return Refusal(
                proposal,
                f"the skill would have {after.tokens} tokens, "
                f"--skillopt-max-skill-tokens={self._max_tokens}",
            )
        return after


def _repeats(document: Document, proposal: Proposal) -> bool:
    """Whether an addition stands in the document already, word for word."""
    if proposal.edit.op not in ("append", "insert_after"):
        return False
    added = " ".join(_WORD.findall(proposal.edit.content.casefold()))
    return f" {added} " in f" {' '.join(_WORD.findall(document.body.casefold()))} "
