"""The history of a training: its steps, the status of every edit, and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_skillopt.edits.records import pass_rate
from pytest_skillopt.run.result import EditRow, StepRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_skillopt.edits.records import Memory, TaskRecord
    from pytest_skillopt.edits.vetting import Refusal
    from pytest_skillopt.gate.data import Verdict
    from pytest_skillopt.run.result import EditStatus
    from pytest_skillopt.skill.edits import Edit


class Observer:
    """Base of observers of a training, which ignores all events."""

    begun: Sequence[Mapping[str, Any]] = ()
    """Data of the records ``final`` of earlier sessions of the run, for the same skill."""

    def step(self, row: StepRow) -> None:
        """Receive the row of a step that has ended."""

    def record(self, kind: str, data: dict[str, Any]) -> None:
        """Receive a decision as plain JSON for the journal."""


class History:
    """The record of a training for its report, its observer and the optimizer's memory."""

    def __init__(self, memory: Memory, observer: Observer) -> None:
        self.observer = observer
        self.steps: list[StepRow] = []
        self.notes: list[str] = []
        self.ended_early = False
        """Whether a cap, a fault or an interrupt ended the search."""
        self._memory = memory
        self._edits: dict[str, EditRow] = {}
        self._effects: dict[str, dict[str, float]] = {}
        """By key of an edit that has won its trial, the change of the pass rate by task."""
        self._left_out: dict[str, dict[str, float]] = {}
        """By key of an edit, the change of the pass rate by task in its ablation."""

    @property
    def step(self) -> int:
        """Number of the current step, from 1."""
        return len(self.steps) + 1

    @property
    def edits(self) -> list[EditRow]:
        """All edits with a status, in the order of their first one."""
        return list(self._edits.values())

    def note(self, text: str) -> None:
        """Add a note about the current step, if there is a text."""
        if text:
            self.notes.append(f"step {self.step}: {text}")

    def settle(
        self,
        edits: Iterable[Edit],
        fate: EditStatus,
        why: str = "",
        effects: Mapping[str, float] | None = None,
        *,
        detail: str = "",
    ) -> None:
        """Set the status of edits in the report and in the memory of the optimizer.

        Args:
            edits: all of the same status.
            fate: their status.
            why: reason for the report and the optimizer.
            effects: change of the pass rate by train task, in [-1, 1].
            detail: reason for the report in place of ``why``.
        """
        for edit in edits:
            own = {task: effects[task] for task in edit.tasks if effects and task in effects}
            self._memory.remember(edit, fate, why, own)
            known = self._edits.get(edit.key)
            if known and known.status == "accepted" and fate == "refused":
                self.turn_away(edit)  # The edit is in the skill, and its row says why.
                continue
            self._edits[edit.key] = row = EditRow.of(
                edit,
                fate,
                detail or why,
                again=known.again if known else 0,
                effects=own or self._effects.get(edit.key, {}),
                left_out=self._left_out.get(edit.key, {}),
            )
            self.observer.record("edit", row.model_dump())

    def decide(
        self, edits: Iterable[Edit], verdict: Verdict, effects: Mapping[str, float] | None = None
    ) -> None:
        """Set the status of edits by a verdict; the optimizer is told nothing of a val task."""
        fate: EditStatus = "accepted" if verdict.accepted else "rejected"
        decided = list(edits)
        detail = verdict.reason
        if len(decided) > 1:  # it says nothing about one of them
            detail = f"{len(decided)} edits together: {detail}"
        self.settle(decided, fate, verdict.nameless, effects, detail=detail)

    def won(self, edits: Iterable[Edit], effects: Mapping[str, float]) -> None:
        """Record that edits have won their trial and wait for the final comparison.

        Args:
            edits: the edits that have won together.
            effects: change of the pass rate by train task, in [-1, 1].
        """
        for edit in edits:
            own = {task: effects[task] for task in edit.tasks if task in effects}
            self._effects[edit.key] = own
            row = EditRow.of(edit, "accepted", effects=own).model_dump()
            self.observer.record("edit", {**row, "status": "waiting"})

    def left_out(self, edit: Edit, effects: Mapping[str, float]) -> None:
        """Record the change of the pass rate of train tasks without an edit, in [-1, 1]."""
        self._left_out.setdefault(edit.key, {}).update(effects)

    def turn_away(self, edit: Edit) -> None:
        """Count a proposed edit that is not tried because it lost before or was accepted."""
        row = self._edits.get(edit.key) or EditRow.of(edit, "lost", "it lost its trials before")
        self._edits[edit.key] = row.model_copy(update={"again": row.again + 1})

    def leave(self, edits: Iterable[Edit]) -> None:
        """Record in the report edits that were not tried before the search ended."""
        for edit in edits:
            why = "the search ended before it was tried"
            self._edits.setdefault(edit.key, EditRow.of(edit, "dropped", why))

    def refuse(self, refusals: Iterable[Refusal]) -> None:
        for refusal in refusals:
            self.settle([refusal.edit], "refused", refusal.why, detail=refusal.detail)
            if refusal.detail:
                self.notes.append(f"an edit was refused: {refusal.detail}")

    def end_step(
        self,
        *,
        epoch: int,
        records: Sequence[TaskRecord],
        candidate: str = "",
        edits: int = 0,
        verdict: Verdict | None = None,
        reason: str = "",
    ) -> None:
        """Close the current step with a row."""
        row = StepRow(
            step=self.step,
            epoch=epoch,
            candidate=candidate,
            edits=edits,
            train=pass_rate(records),
            tasks=sum(record.n > 0 for record in records),
            passing=sum(record.passed == record.n > 0 for record in records),
            before=verdict.before if verdict else None,
            after=verdict.after if verdict else None,
            verdict=verdict.decision if verdict else "none",
            reason=reason,
            gate=verdict.gate if verdict else "",
        )
        self.steps.append(row)
        self.observer.step(row)

    def end_early(self, reason: str = "") -> None:
        """Record that something is left undone, by a cap or a fault; note why a search ended."""
        self.ended_early = True
        if reason:
            self.notes.append(f"the search ended early: {reason}")

    def record(self, kind: str, candidate: str, verdict: Verdict) -> None:
        """Send the observer a verdict about a version."""
        data = {"step": self.step, "candidate": candidate, **verdict.to_json()}
        self.observer.record(kind, data)
