"""The history of a training: its steps, the status of every edit, and notes."""

from __future__ import annotations

from dataclasses import dataclass
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


ROUND = "round"
"""Kind of the journal's record of a round of the default search."""


class Observer:
    """Base of observers of a training, which ignores all events."""

    begun: Sequence[Mapping[str, Any]] = ()
    """Data of the records ``final`` of earlier sessions of the run, for the same skill."""
    rounds: Sequence[Mapping[str, Any]] = ()
    """The same of the records ``round``."""

    def step(self, row: StepRow) -> None:
        """Receive the row of a step that has ended."""

    def record(self, kind: str, data: dict[str, Any]) -> None:
        """Receive a decision as plain JSON for the journal."""

    def rates(self, start: float, now: float) -> None:
        """Receive the mean pass rate of the train tasks at the start and now, as expected."""

    def joins(self, row: EditRow) -> None:
        """Receive an edit that a search keeps; the same one may come several times."""

    def goes(self, row: EditRow) -> None:
        """Receive an edit that a search keeps no more."""

    def expects(self, more: float) -> None:
        """Receive how many more rollouts the training is expected to take."""

    def compares(self, edits: int, e_value: float, most: int) -> None:
        """Learn that the final comparison begins.

        Args:
            edits: number of edits that it is about.
            e_value: what the search has won by its bets.
            most: most fresh samples.
        """


@dataclass(frozen=True, slots=True)
class Basis:
    """Samples of train tasks that a step starts from."""

    epoch: int
    """From 1."""
    records: Sequence[TaskRecord]
    train: float | None = None
    """Estimate of the pass rate of the train tasks, in [0, 1]; None: that of the records."""


class History:
    """The record of a training for its report, its observer and the optimizer's memory."""

    def __init__(self, memory: Memory, observer: Observer) -> None:
        self.observer = observer
        self.steps: list[StepRow] = []
        self.notes: list[str] = []
        self.fault = ""
        """Fault that the suite seems to have; empty for none."""
        self.why_early = ""
        """Reason for which the search ended before its end."""
        self.ended_early = False
        """Whether a cap, a fault or an interrupt ended the search."""
        self._memory = memory
        self._edits: dict[str, EditRow] = {}
        self._measured: dict[str, dict[str, Any]] = {}
        """Fields of an edit's row that the search's samples give, by the edit's key."""

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

    def suspect(self, fault: str) -> None:
        """Record what seems to be wrong with the suite, if there is a text."""
        self.fault = fault

    def settle(
        self,
        edits: Iterable[Edit],
        fate: EditStatus,
        why: str = "",
        *,
        detail: str = "",
    ) -> None:
        """Set the status of edits in the report and in the memory of the optimizer.

        Args:
            edits: all of the same status.
            fate: their status.
            why: reason for the report and the optimizer.
            detail: reason for the report in place of ``why``.
        """
        for edit in edits:
            self._memory.remember(edit, fate, why)
            known = self._edits.get(edit.key)
            if known and known.status == "accepted" and fate == "refused":
                self.turn_away(edit)  # The edit is in the skill, and its row says why.
                continue
            again = known.again if known else 0
            self._edits[edit.key] = row = EditRow.of(
                edit,
                fate,
                detail or why,
                again=again,
                **self._measured.get(edit.key, {}),
            )
            self.observer.record("edit", row.model_dump())

    def decide(self, edits: Iterable[Edit], verdict: Verdict) -> None:
        """Set the status of edits by a verdict; the optimizer is told nothing of a val task."""
        fate: EditStatus = "accepted" if verdict.accepted else "rejected"
        decided = list(edits)
        detail = verdict.reason
        if len(decided) > 1:  # it says nothing about one of them
            detail = f"{len(decided)} edits together: {detail}"
        self.settle(decided, fate, verdict.nameless, detail=detail)

    def measure(
        self, edit: Edit, *, chance: float, points: float, effects: Mapping[str, float]
    ) -> None:
        """Note what the search's samples say of an edit, for its row.

        Args:
            edit: the edit.
            chance: probability that it helps, in [0, 1].
            points: expected change of the mean pass rate of the train tasks by it, in [-1, 1].
            effects: the same for each train task that asked for it.
        """
        self._measured[edit.key] = {"chance": chance, "points": points, "effects": dict(effects)}

    def keep(self, edit: Edit) -> None:
        """Record that an edit is kept and waits for the final comparison."""
        row = EditRow.of(edit, "accepted", **self._measured.get(edit.key, {}))
        self.observer.record("edit", {**row.model_dump(), "status": "waiting"})
        self.observer.joins(row)

    def doubt(self, edit: Edit) -> None:
        """Record that an edit which was kept is kept no more."""
        row = EditRow.of(edit, "open", **self._measured.get(edit.key, {}))
        self.observer.record("edit", row.model_dump())
        self.observer.goes(row)

    def turn_away(self, edit: Edit) -> None:
        """Count a proposal of an edit that is accepted, or was given up before."""
        if row := self._edits.get(edit.key):
            self._edits[edit.key] = row.model_copy(update={"again": row.again + 1})

    def leave(self, edits: Iterable[Edit]) -> None:
        """Record in the report edits that were not sampled before the search ended."""
        for edit in edits:
            why = "the search ended before it was sampled"
            self._edits.setdefault(edit.key, EditRow.of(edit, "open", why))

    def refuse(self, refusals: Iterable[Refusal]) -> None:
        for refusal in refusals:
            self.settle([refusal.edit], "refused", refusal.why, detail=refusal.detail)
            if refusal.detail:
                self.notes.append(f"an edit was refused: {refusal.detail}")

    def end_step(
        self,
        basis: Basis,
        *,
        candidate: str = "",
        edits: int = 0,
        verdict: Verdict | None = None,
        reason: str = "",
    ) -> None:
        """Close the current step with a row."""
        decided: dict[str, Any] = {}
        if verdict is not None:
            decided = {"verdict": verdict.decision, "gate": verdict.gate}
            decided |= {"before": verdict.before, "after": verdict.after}
        train = basis.train
        if train is None:
            train = pass_rate(basis.records)
        row = StepRow(
            step=self.step,
            epoch=basis.epoch,
            candidate=candidate,
            edits=edits,
            train=train,
            tasks=sum(record.n > 0 for record in basis.records),
            reason=reason,
            **decided,
        )
        self.steps.append(row)
        self.observer.step(row)

    def end_early(self, reason: str = "") -> None:
        """Record that something is left undone, by a cap or a fault, and why a search ended."""
        self.ended_early = True
        self.why_early = self.why_early or reason

    def record(self, kind: str, candidate: str, verdict: Verdict) -> None:
        """Send the observer a verdict about a version."""
        data = {"step": self.step, "candidate": candidate, **verdict.to_json()}
        self.observer.record(kind, data)
