"""The data of a decision: the draws a gate asks for, the samples it is told, its verdict."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

Arm = Literal["incumbent", "candidate"]
INCUMBENT: Arm = "incumbent"
CANDIDATE: Arm = "candidate"
Decision = Literal["accepted", "rejected", "unmeasured"]
Change = Literal["fixed", "broken", "undecided", "same"]
VETTING = "vetting"
"""Stands for the gate where a candidate was refused before any sample."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A sample that a gate wants: number ``index`` of ``stream`` of one task under one arm."""

    arm: Arm
    task: str
    stream: str
    index: int


@dataclass(frozen=True, slots=True)
class Sample:
    """The answer to a draw."""

    draw: Draw
    passed: bool | None
    """None: an infrastructure error or a skip, no measurement."""
    score: float = 0.0
    """Soft score in [0, 1]; counts with the metrics ``soft`` and ``mixed``."""
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class TaskEvidence:
    """Counts of one task in one decision."""

    task: str
    incumbent_passed: int = 0
    incumbent_n: int = 0
    candidate_passed: int = 0
    candidate_n: int = 0
    incumbent_score: float = 0.0
    """Mean of the chosen metric over the incumbent's samples, in [0, 1]."""
    candidate_score: float = 0.0
    e_up: float | None = None
    """E-value that the candidate passes the task more often; None where the gate has none."""
    e_down: float | None = None
    """E-value that it passes the task less often."""
    change: Change = "same"
    errors: int = 0
    skipped: bool = False
    left_out: bool = False
    """It gave nothing but infrastructure errors, under both arms, and was not compared."""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a gate decided, and on what evidence."""

    decision: Decision
    reason: str
    """One sentence for a reader."""
    gate: str
    final: bool = False
    """It is that of the final comparison."""
    metric: str = "hard"
    before: float | None = None
    """Suite mean of the metric under the incumbent, in [0, 1]."""
    after: float | None = None
    tasks: tuple[TaskEvidence, ...] = ()
    e_value: float | None = None
    """Evidence over the whole suite that some task improved."""
    alpha: float | None = None
    missing: str = ""
    """With ``unmeasured``: what is missing and how many samples it would take."""
    validated: bool = True
    """False with the gate ``off``: nothing was tested."""
    incumbent_samples: int = 0
    """Samples of the incumbent that the verdict rests on, the reused tape included."""
    candidate_samples: int = 0

    @property
    def accepted(self) -> bool:
        return self.decision == "accepted"

    @property
    def nameless(self) -> str:
        """What the optimizer is told: nothing of a val task, neither its name nor its counts."""
        if self.decision == "unmeasured":
            return "the gate could not measure enough"
        if self.accepted:
            return ""
        if self.gate == VETTING:
            return "the checks refused it"
        if self.names("broken"):
            return "the gate saw a regression"
        return "the gate saw no credible gain"

    def names(self, change: str) -> tuple[str, ...]:
        """Node ids of the tasks that were ``fixed``, ``broken`` or ``undecided``."""
        return tuple(t.task for t in self.tasks if t.change == change)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Verdict:
        return cls(**{**data, "tasks": tuple(TaskEvidence(**t) for t in data["tasks"])})
