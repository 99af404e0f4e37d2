"""The material of an optimizer call as text: the document, the evidence and what is known.

Whatever came out of a test or a model is data from outside: bounded, cleaned, and quoted between
marks which it cannot forge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.untrusted import bound, fence, redact, strip_invisible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.proposals import Proposal
    from pytest_skillopt.edits.records import TaskRecord
    from pytest_skillopt.suite.rollouts import Rollout

_EVIDENCE_CHARS = 48_000
"""Transcripts of one call, together; about 12,000 tokens."""
_TRANSCRIPT_CHARS = 12_000
_LEAST_CHARS = 1_200
_MESSAGE_CHARS = 2_000
_DOC_CHARS = 1_000
_REASON_CHARS = 400


def material(context: Context, *sections: tuple[str, str]) -> str:
    """The document, what is fixed and known, then the sections of this call (title, text)."""
    parts = [
        ("The document", fence(redact(context.document.text))),
        ("House rules", context.preferences),
        ("What the tasks fix, and no edit may change", _list(context.contracts)),
        ("Tried before", _quoted_if_any(context.memory.render())),
        ("Advice from earlier epochs", _quoted_if_any(context.memory.advice)),
        *sections,
    ]
    return "\n\n".join(f"# {title}\n\n{text}" for title, text in parts if text.strip())


def quote(text: str, limit: int = _TRANSCRIPT_CHARS) -> str:
    """Text from outside between marks: secrets and invisible characters out, head and tail kept."""
    clean = strip_invisible(redact(text))
    return fence(bound(clean, limit * 2 // 3, limit // 3))


def evidence(records: Sequence[TaskRecord], context: Context) -> str:
    """Rollouts of some tasks: for each the worst failure, and the best success beside it."""
    shown = [(record, _choose(record, context.settings.contrastive)) for record in records]
    count = sum(len(rollouts) for _, rollouts in shown)
    room = max(_LEAST_CHARS, min(_TRANSCRIPT_CHARS, _EVIDENCE_CHARS // max(1, count)))
    return "\n\n".join(
        _describe_task(number, record, rollouts, context, room)
        for number, (record, rollouts) in enumerate(shown, start=1)
    )


def numbered(proposals: Sequence[Proposal]) -> str:
    """Proposals as a numbered list, from 0, with what speaks for them."""
    return "\n\n".join(_describe_proposal(i, proposal) for i, proposal in enumerate(proposals))


def _choose(record: TaskRecord, contrastive: bool) -> list[Rollout]:
    worst = sorted(record.failures, key=lambda rollout: rollout.score or 0.0)[:1]
    best = sorted(record.successes, key=lambda rollout: -(rollout.score or 0.0))[:1]
    return [*worst, *best] if contrastive or not worst else worst


def _describe_task(
    number: int, record: TaskRecord, rollouts: Sequence[Rollout], context: Context, room: int
) -> str:
    lines = [f"## Task {number}: {record.task.id}", ""]
    lines.append(f"Passed {record.passed} of {record.n} rollouts under this document.")
    if record.task.doc:
        lines += ["", f"About: {record.task.doc.strip()[:_DOC_CHARS]}"]
    if record.task.contract:
        lines += ["", f"Fixed by the task: {record.task.contract.strip()[:_DOC_CHARS]}"]
    for rollout in rollouts:
        lines += ["", _describe_rollout(rollout, context.settings.feedback, room)]
    return "\n".join(lines)


def _describe_rollout(rollout: Rollout, feedback: str, room: int) -> str:
    lines = [f"### A rollout that {rollout.outcome}", ""]
    if not rollout.passed:
        lines += _describe_failure(rollout, feedback)
    turns = "\n\n".join(f"[{turn.role}]\n{turn.content}" for turn in rollout.transcript)
    if turns:
        lines += ["Transcript:", quote(turns, room)]
    return "\n".join(lines).rstrip()


def _describe_failure(rollout: Rollout, feedback: str) -> list[str]:
    """What an analyst learns of a failure: everything, the message, or the score alone."""
    score = f"Score: {rollout.score or 0.0:g}"
    if feedback == "score":
        return [score, ""]
    words = (rollout.feedback or rollout.message).strip()
    if feedback == "message":
        words = words.split("\n", 1)[0]
    lines = [score]
    if words:
        lines += ["How it failed:", quote(words, _MESSAGE_CHARS)]
    if feedback == "full" and rollout.location:
        lines.append(f"Where: {rollout.location}")
    return [*lines, ""]


def _describe_proposal(number: int, proposal: Proposal) -> str:
    edit = proposal.edit
    lines = [
        f"## Edit {number}: {edit.op}",
        f"From {proposal.origin} analysts, support {proposal.support}, "
        f"asked for by {len(proposal.tasks)} tasks.",
    ]
    if edit.target:
        lines += ["Target:", quote(edit.target)]
    if edit.content:
        lines += ["Content:", quote(edit.content)]
    if proposal.reason:
        lines += ["Reason:", quote(" ".join(proposal.reason.split()), _REASON_CHARS)]
    return "\n".join(lines)


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {' '.join(line.split())}" for line in lines)


def _quoted_if_any(text: str) -> str:
    return quote(text) if text.strip() else ""
