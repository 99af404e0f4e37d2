"""What goes into a decision and comes out: tasks, options, draws, samples, the verdict."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Arm = Literal["incumbent", "candidate"]
INCUMBENT: Arm = "incumbent"
CANDIDATE: Arm = "candidate"
Decision = Literal["accepted", "rejected", "unmeasured"]
Change = Literal["fixed", "broken", "undecided", "same"]
MetricName = Literal["hard", "soft", "mixed"]
TAPE, SCREEN = "tape", "screen"
"""Streams: samples that are kept for later decisions, and those chosen by their luck."""
VETTING = "vetting"
"""Stands for the gate where a candidate was refused before any sample."""


@dataclass(frozen=True, slots=True)
class GateTask:
    """What a gate knows of a task."""

    id: str
    must_pass: bool = False
    """A credible failure blocks, whatever else improves."""
    trigger: bool | None = None
    """Of a trigger task: whether the skill should be asked for."""


class Seen(NamedTuple):
    """Samples of one task that were taken before a decision, under each of the two skills."""

    task: str
    candidate_passed: int
    candidate_n: int
    incumbent_passed: int
    incumbent_n: int


@dataclass(frozen=True, slots=True)
class GateOptions:
    """How strict and how thorough a gate is."""

    metric: MetricName = "hard"
    rollouts: int = 3
    """Samples of each arm and task in the gates with a fixed number of them."""
    most: int = 5
    """Samples of each arm that the default gate takes at most, in the mean over the tasks."""
    alpha: float = 0.05
    k0: int = 3
    kc: int = 3
    kmax: int = 32
    focus: float = 0.3
    """E-value down to which a task still looks promising (or suspect) and is sampled again."""
    margin: float = 0.05
    alpha_run: float = 0.0
    veto: bool = False
    """Every task that credibly broke refuses the edit, whatever else improves."""
    max_error_rate: float = 0.05
    final: bool = False
    """Whether it is the last word of a training, on samples of its own stream."""
    targets: tuple[str, ...] = ()
    """Tasks on which a search expects a change, likeliest first; no sample that chose them
    counts."""
    held_out: tuple[str, ...] = ()
    """Tasks that the search has not seen."""
    budget: int | None = None
    """Samples that a decision may take in all; None leaves it to ``most``."""
    prior: float = 1.0
    """E-value against "the edit does nothing" of earlier samples that no gate draws again."""
    seen: tuple[Seen, ...] = ()
    """Earlier samples of tasks that are neither targets nor held out, for the net effect."""

    def alpha_at(self, decisions_before: int) -> float:
        """Alpha of a decision; with ``alpha_run``, what the series 6 / (pi t)^2 leaves for it."""
        if not self.alpha_run:
            return self.alpha
        return self.alpha_run * 6 / (math.pi * (decisions_before + 1)) ** 2


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

    def value(self, metric: MetricName) -> float:
        """Its worth in [0, 1]: the test's outcome, the recorded score, or half of each.

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
    """E-value that the candidate passes the task more often; None where the gate has none."""
    e_down: float | None = None
    """E-value that it passes the task less often."""
    change: Change = "same"
    errors: int = 0
    skipped: bool = False
    left_out: bool = False
    """It gave nothing but infrastructure errors, under both arms, and was not compared."""


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
