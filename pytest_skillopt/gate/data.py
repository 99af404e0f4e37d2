"""Input and output of a decision: tasks, options, draws, samples, the verdict."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

Arm = Literal["incumbent", "candidate"]
INCUMBENT: Arm = "incumbent"
CANDIDATE: Arm = "candidate"
ARMS = (INCUMBENT, CANDIDATE)
Decision = Literal["accepted", "rejected", "unmeasured"]
Change = Literal["fixed", "broken", "undecided", "same"]
MetricName = Literal["hard", "soft", "mixed"]
TAPE, SCREEN = "tape", "screen"
"""Streams: samples that later decisions reuse, and samples that they do not."""
VETTING = "vetting"
"""Name in place of a gate's if a candidate was refused before any sample."""
MOST_OF_TASK = 32
"""Samples of a task under one arm after which a decision does not follow it any further."""


@dataclass(frozen=True, slots=True)
class GateTask:
    """A task as a gate knows it."""

    id: str
    must_pass: bool = False
    """The edit is refused if the task credibly broke, whatever else improves."""
    trigger: bool | None = None
    """Whether a trigger task should ask for the skill; None if it is not a trigger task."""


@dataclass(frozen=True, slots=True)
class Searched:
    """Findings of a search about the candidate that it offers."""

    lift: tuple[tuple[str, float], ...] = ()
    """Expected lift of each task, in [-1, 1]; one that is missing has the mean of the others."""
    log_e: float = 0.0
    """Log e-value against "no edit does anything", from its bets."""
    rates: tuple[tuple[str, float], ...] = ()
    """Expected pass rate of each task under the incumbent, in [0, 1]."""
    known: tuple[str, ...] = ()
    """Tasks that it has sampled; of a model that repeats itself they are no new evidence."""
    repeats: bool = False
    """Whether it has noticed that the model repeats its reply to a document and a task."""
    agreement: float = 1.0
    """Chance that its repeated samples agree as they did, if the model does not repeat its replies;
    infinity if any of them disagreed."""


@dataclass(frozen=True, slots=True)
class GateOptions:
    """Options of a gate: its levels and numbers of samples."""

    metric: MetricName = "hard"
    rollouts: int = 3
    """Samples of each arm and task in a round of the gates that take whole rounds."""
    most: int = 5
    """Largest number of samples of each arm in the default gate, in the mean over the tasks."""
    alpha: float = 0.05
    max_error_rate: float = 0.05
    final: bool = False
    """Whether it is the final comparison of a training, on samples of its own stream."""
    held_out: tuple[str, ...] = ()
    """Tasks that the search has not seen."""
    budget: int | None = None
    """Largest number of samples of a decision; None if only ``most`` bounds it."""
    searched: Searched | None = None
    """None if no search has offered the candidate."""


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
    """None if it was not measured: an infrastructure error or a skip."""
    score: float = 0.0
    """Soft score in [0, 1]; counts with the metrics ``soft`` and ``mixed``."""
    skipped: bool = False

    def value(self, metric: MetricName) -> float:
        """Return its value in [0, 1]: the test's outcome, the recorded score, or their mean.

        Raises:
            ValueError: the score is not a number in [0, 1].
        """
        if not 0 <= self.score <= 1:
            raise ValueError(
                f"{self.draw.task}: score {self.score} is not a number in [0, 1]; "
                "scale it before rollout.score(...)"
            )
        hard = float(bool(self.passed))
        return {"hard": hard, "soft": self.score, "mixed": (hard + self.score) / 2}[metric]


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
    """E-value that the candidate passes the task more often; None if the gate has none."""
    e_down: float | None = None
    """E-value that it passes the task less often."""
    change: Change = "same"
    errors: int = 0
    skipped: bool = False
    left_out: bool = False
    """Whether it gave only infrastructure errors under both arms and was not compared."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision of a gate and its evidence."""

    decision: Decision
    reason: str
    """One sentence for a reader."""
    gate: str
    final: bool = False
    """Whether it is the verdict of the final comparison."""
    metric: str = "hard"
    before: float | None = None
    """Suite mean of the metric under the incumbent, in [0, 1]."""
    after: float | None = None
    tasks: tuple[TaskEvidence, ...] = ()
    e_value: float | None = None
    """Evidence over the whole suite that some task improved."""
    alpha: float | None = None
    validated: bool = True
    """False with the gate ``off``, which tests nothing."""
    incumbent_samples: int = 0
    """Samples of the incumbent behind the verdict, the reused ones included."""
    candidate_samples: int = 0

    @property
    def accepted(self) -> bool:
        return self.decision == "accepted"

    @property
    def nameless(self) -> str:
        """Reason for the optimizer, without names and counts of val tasks."""
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
        """Return the node ids of the tasks that were ``fixed``, ``broken`` or ``undecided``."""
        return tuple(t.task for t in self.tasks if t.change == change)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
