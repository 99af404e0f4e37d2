"""One row an edit for the report: what was proposed and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pytest_skillopt.run.result import EditRow
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from pytest_skillopt.edits.memory import Fate
    from pytest_skillopt.edits.proposals import Proposal

_STATUS: dict[Fate, Literal["accepted", "rejected", "refused", "lost", "dropped"]] = {
    "refused": "refused",
    "failed": "lost",
    "rejected": "rejected",
    "accepted": "accepted",
    "dropped": "dropped",
}


def edit_row(proposal: Proposal, fate: Fate, why: str) -> EditRow:
    """A proposal and what became of it, without secrets that the optimizer may have written."""
    return EditRow(
        op=proposal.edit.op,
        target=redact(proposal.edit.target),
        content=redact(proposal.edit.content),
        reason=redact(proposal.reason),
        tasks=list(proposal.tasks),
        support=proposal.support,
        step=proposal.step,
        status=_STATUS[fate],
        why=redact(why),
    )
