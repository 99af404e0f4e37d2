"""What is told and kept of a training: its steps, what became of every edit, and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pytest_skillopt.edits.memory import edit_row
from pytest_skillopt.edits.records import pass_rate
from pytest_skillopt.run.result import StepRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_skillopt.edits.memory import Fate, Memory
    from pytest_skillopt.edits.proposals import Proposal
    from pytest_skillopt.edits.records import TaskRecord
    from pytest_skillopt.edits.vetting import Refusal
    from pytest_skillopt.gate.data import Verdict
    from pytest_skillopt.run.result import EditRow


class Observer(Protocol):
    """Is told what happens, as it happens."""

    def step(self, row: StepRow) -> None:
        """A step has ended."""

    def record(self, kind: str, data: dict[str, Any]) -> None:
        """A decision was made; plain JSON for the journal."""


class NullObserver:
    """Listens to nothing."""

    def step(self, row: StepRow) -> None:
        """A step has ended."""

    def record(self, kind: str, data: dict[str, Any]) -> None:
        """A decision was made."""


class Ledger:
    """Keeps the books, for the report and for the memory of the optimizer."""

    def __init__(self, memory: Memory, observer: Observer) -> None:
        self.steps: list[StepRow] = []
        self.notes: list[str] = []
        self.ended_early = False
        """A cap, a fault or an interrupt came before the end."""
        self._memory = memory
        self._observer = observer
        self._edits: dict[str, EditRow] = {}
        self._effects: dict[str, dict[str, float]] = {}

    @property
    def step(self) -> int:
        """Number of the current step, from 1."""
        return len(self.steps) + 1

    @property
    def edits(self) -> list[EditRow]:
        """Every proposal that something became of, in the order of its first fate."""
        return list(self._edits.values())

    def settle(
        self,
        proposals: Iterable[Proposal],
        fate: Fate,
        why: str = "",
        effects: Mapping[str, float] | None = None,
        *,
        detail: str = "",
    ) -> None:
        """Note what became of proposals: for the report, and for the memory of the optimizer.

        Args:
            why: told to the optimizer too.
            effects: change of the pass rate by train task, in [-1, 1].
            detail: told to the report alone.
        """
        for proposal in proposals:
            own = {task: effects[task] for task in proposal.tasks if effects and task in effects}
            self._memory.remember(proposal, fate, why, own)
            row, known = edit_row(proposal, fate, detail or why), self._edits.get(proposal.key)
            kept = {
                "again": known.again if known else 0,
                "effects": own or self._effects.get(proposal.key, {}),
            }
            self._edits[proposal.key] = row.model_copy(update=kept)
            self._observer.record("edit", self._edits[proposal.key].model_dump())

    def won(self, proposals: Iterable[Proposal], effects: Mapping[str, float]) -> None:
        """Tell that edits have won their trial and wait for the decision about them all.

        Args:
            effects: change of the pass rate by train task, in [-1, 1].
        """
        for proposal in proposals:
            own = {task: effects[task] for task in proposal.tasks if task in effects}
            self._effects[proposal.key] = own
            row = edit_row(proposal, "accepted", "").model_dump()
            self._observer.record("edit", {**row, "status": "waiting", "effects": own})

    def turn_away(self, proposal: Proposal, why: str) -> None:
        """Count an edit that is not tried because it has lost, in this run or an earlier one."""
        row = self._edits.get(proposal.key) or edit_row(proposal, "failed", why)
        self._edits[proposal.key] = row.model_copy(update={"again": row.again + 1})

    def leave(self, proposals: Iterable[Proposal]) -> None:
        """Edits that were proposed and not tried before the search ended: for the report alone."""
        for proposal in proposals:
            why = "the search ended before it was tried"
            self._edits.setdefault(proposal.key, edit_row(proposal, "dropped", why))

    def refuse(self, refusals: Iterable[Refusal]) -> None:
        for refusal in refusals:
            self.settle([refusal.proposal], "refused", refusal.why, detail=refusal.detail)
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
    ) -> StepRow:
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
            reason=reason or (verdict.reason if verdict else ""),
            gate=verdict.gate if verdict else "",
        )
        self.steps.append(row)
        self._observer.step(row)
        return row

    def end_early(self, reason: str) -> None:
        """Note that there was more to do: with a higher cap, or without the fault."""
        self.ended_early = True
        self.notes.append(f"the search ended early: {reason}")

    def tell(self, kind: str, data: dict[str, Any]) -> None:
        """Tell of something that a resumed run has to know."""
        self._observer.record(kind, data)

    def record(self, kind: str, candidate: str, verdict: Verdict) -> None:
        """Tell of a decision about a version."""
        data = {"step": self.step, "candidate": candidate, **verdict.to_json()}
        self._observer.record(kind, data)
