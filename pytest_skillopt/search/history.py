"""The history of a training: its steps, what became of every edit, and notes."""

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
    """Is told what happens, as it happens; this one listens to nothing."""

    begun: Sequence[Mapping[str, Any]] = ()
    """Data of the records ``final`` of earlier sessions of the run, for the same skill."""

    def step(self, row: StepRow) -> None:
        """A step has ended."""

    def record(self, kind: str, data: dict[str, Any]) -> None:
        """A decision was made; plain JSON for the journal."""


class History:
    """Kept for the report, and told to the memory of the optimizer."""

    def __init__(self, memory: Memory, observer: Observer) -> None:
        self.observer = observer
        self.steps: list[StepRow] = []
        self.notes: list[str] = []
        self.ended_early = False
        """A cap, a fault or an interrupt came before the end."""
        self._memory = memory
        self._edits: dict[str, EditRow] = {}
        self._effects: dict[str, dict[str, float]] = {}
        """By edit that has won its trial, the change of the pass rate by task."""
        self._left_out: dict[str, dict[str, float]] = {}
        """The same when it was left out again."""

    @property
    def step(self) -> int:
        """Number of the current step, from 1."""
        return len(self.steps) + 1

    @property
    def edits(self) -> list[EditRow]:
        """Every edit that something became of, in the order of its first fate."""
        return list(self._edits.values())

    def note(self, text: str) -> None:
        """Note what a reader must know of the current step, if anything."""
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
        """Note what became of edits: for the report, and for the memory of the optimizer.

        Args:
            why: told to the optimizer too.
            effects: change of the pass rate by train task, in [-1, 1].
            detail: told to the report alone.
        """
        for edit in edits:
            own = {task: effects[task] for task in edit.tasks if effects and task in effects}
            self._memory.remember(edit, fate, why, own)
            known = self._edits.get(edit.key)
            if known and known.status == "accepted" and fate == "refused":
                self.turn_away(edit)  # It stands in the skill, and its row says how it came there.
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
        """``settle`` what a verdict was about; the optimizer is told nothing of a val task."""
        fate: EditStatus = "accepted" if verdict.accepted else "rejected"
        self.settle(edits, fate, verdict.nameless, effects, detail=verdict.reason)

    def won(self, edits: Iterable[Edit], effects: Mapping[str, float]) -> None:
        """Tell that edits have won their trial and wait for the decision about them all.

        Args:
            effects: change of the pass rate by train task, in [-1, 1].
        """
        for edit in edits:
            own = {task: effects[task] for task in edit.tasks if task in effects}
            self._effects[edit.key] = own
            row = EditRow.of(edit, "accepted", effects=own).model_dump()
            self.observer.record("edit", {**row, "status": "waiting"})

    def left_out(self, edit: Edit, effects: Mapping[str, float]) -> None:
        """Note how the pass rate of train tasks changes without an edit, in [-1, 1]."""
        self._left_out.setdefault(edit.key, {}).update(effects)

    def turn_away(self, edit: Edit) -> None:
        """Count an edit that is not tried: it has lost its trials before, or was accepted."""
        row = self._edits.get(edit.key) or EditRow.of(edit, "lost", "it lost its trials before")
        self._edits[edit.key] = row.model_copy(update={"again": row.again + 1})

    def leave(self, edits: Iterable[Edit]) -> None:
        """Edits that were proposed and not tried before the search ended: for the report alone."""
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
        """Tell of a decision about a version."""
        data = {"step": self.step, "candidate": candidate, **verdict.to_json()}
        self.observer.record(kind, data)
