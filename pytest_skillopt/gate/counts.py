"""Counts of a decision: measurements of both arms, their evidence, and its words."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_skillopt.gate.data import ARMS, CANDIDATE, INCUMBENT, TaskEvidence
from pytest_skillopt.gate.posterior import Pair
from pytest_skillopt.gate.statistics import WORDING, log_e
from pytest_skillopt.words import named, percent, points_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.gate.data import Arm, Change, MetricName, Sample

DECISIVE = math.log(10)
"""Log e-value from which a single task is reported as fixed or broken."""
AGREEING = 6
"""Fewest further samples that tell a model that repeats itself."""
MAX_REPLACEMENTS = 3
"""Infrastructure errors in a row after which a task may still be measured under an arm."""


@dataclass(slots=True)
class OneCount:
    """Measurements of one task under one arm."""

    outcomes: list[bool] = field(default_factory=list)
    """Whether each sample passed, in the order of the draws."""
    values: list[float] = field(default_factory=list)
    """The metric of each sample."""
    skipped: bool = False
    failures_in_a_row: int = 0

    @property
    def n(self) -> int:
        """Number of measurements."""
        return len(self.values)

    @property
    def passed(self) -> int:
        """Number of passes."""
        return sum(self.outcomes)

    @property
    def total(self) -> float:
        """Sum of the metric."""
        return math.fsum(self.values)

    @property
    def mean(self) -> float:
        """Mean of the metric, in [0, 1]; 0 if nothing was measured."""
        return self.total / self.n if self.n else 0.0

    @property
    def is_unmeasurable(self) -> bool:
        """Whether too many samples in a row were infrastructure errors to go on."""
        return self.failures_in_a_row > MAX_REPLACEMENTS


class Counts(dict["tuple[Arm, str]", OneCount]):
    """The counts of a decision by arm and task."""

    def __init__(self, tasks: Sequence[str], metric: MetricName) -> None:
        super().__init__({(arm, task): OneCount() for task in tasks for arm in ARMS})
        self.tasks = list(tasks)
        """Tasks that count."""
        self.all_tasks = tuple(tasks)
        """All tasks, the dropped ones included."""
        self.errors: Counter[str] = Counter()
        """Infrastructure errors by task."""
        self.left_out: list[str] = []
        """Tasks that were dropped because they gave nothing but errors."""
        self.measured: set[str] = set()
        """Tasks that have ever passed or failed in this decision, under either arm."""
        self._metric = metric

    def add(self, sample: Sample) -> bool:
        """Count a sample; return whether it needs no replacement."""
        count = self[sample.draw.arm, sample.draw.task]
        if sample.skipped:
            count.skipped = True
        elif sample.passed is None:
            self.errors[sample.draw.task] += 1
            count.failures_in_a_row += 1
            return False
        else:
            self.measured.add(sample.draw.task)
            count.outcomes.append(sample.passed)
            count.values.append(sample.value(self._metric))
            count.failures_in_a_row = 0
        return True

    def samples(self, arm: Arm) -> int:
        """Return the number of measurements of the arm."""
        return sum(self[arm, task].n for task in self.all_tasks)

    def rate(self, arm: Arm) -> float | None:
        """Return the mean of the metric if every task that counts was measured, else None."""
        if self.tasks and all(self[arm, task].n for task in self.tasks):
            return self.mean(arm)
        return None

    def mean(self, arm: Arm, tasks: Sequence[str] = ()) -> float:
        """Return the mean of the metric over the tasks (default: all), with equal weights."""
        tasks = tasks or self.tasks
        return math.fsum(self[arm, task].mean for task in tasks) / len(tasks)

    def moved(self, tasks: Sequence[str] = ()) -> str:
        """Describe the means of both arms: ``56.3 % to 61.2 % (+4.9 points)``."""
        before = self.mean(INCUMBENT, tasks)
        after = self.mean(CANDIDATE, tasks)
        points = points_between(before, after)
        return f"{percent(before)} to {percent(after)} ({points} points)"

    def gain(self, tasks: Sequence[str], missing: int = 0) -> float:
        """Sum the changes of the means of tasks; ``missing`` is that of an unsampled incumbent."""
        return math.fsum(
            self[CANDIDATE, task].mean - (old.mean if old.n else missing)
            for task in tasks
            for old in [self[INCUMBENT, task]]
        )

    def deviation(self, tasks: Sequence[str]) -> float:
        """Return the standard deviation of the sum of changes of tasks with both arms.

        Accidents of wording count, too (``gate/statistics.py``).
        """
        variance = 0.0
        for task in tasks:
            pair = self.pair(task)
            accident = 2 * (WORDING * pair.variance) ** 2
            variance += accident + pair.variance * (1 / pair.before_n + 1 / pair.after_n)
        return math.sqrt(variance)

    def score(self, tasks: Sequence[str]) -> float:
        """Return the change of the observed mean over its standard deviation; 0 if unknown."""
        compared = self.complete()
        known = [task for task in tasks if task in compared]
        return self.gain(known) / self.deviation(known) if known else 0.0

    def strata(self, tasks: Sequence[str]) -> list[tuple[int, int, int, int]]:
        """Return passed and n of the candidate, passed and n of the incumbent, for each task.

        An unsampled incumbent counts as one failure.
        """
        pairs = [(self[CANDIDATE, task], self[INCUMBENT, task]) for task in tasks]
        return [(new.passed, new.n, old.passed, old.n or 1) for new, old in pairs]

    def pair(self, task: str) -> Pair:
        """Return the sums and numbers of both arms of a task."""
        old = self[INCUMBENT, task]
        new = self[CANDIDATE, task]
        return Pair(old.total, old.n, new.total, new.n)

    def complete(self) -> list[str]:
        """Return the tasks that count with samples of both arms.

        A cap may leave no sample in place of one that ended in an infrastructure error.
        """
        return [task for task in self.tasks if self.pair(task).is_complete]

    def gap(self) -> str:
        """Say which tasks lack a sample of an arm, in place of an error; "" if none does."""
        known = self.complete()
        missing = [task for task in self.tasks if task not in known]
        return f"a cap leaves no sample of {named(missing)}" if missing else ""

    def repeat(self) -> bool:
        """Return whether the model seems to give one and the same outcome to each skill and task.

        No task has two outcomes under one skill, although some pass only under the candidate and
        others only under the incumbent, so that their rates are neither 0 nor 1; and the latter,
        which no edit is meant to do, were sampled ``AGREEING`` further times at least.
        """
        further = sum(self[arm, task].n - 1 for arm in ARMS for task in self.fallen())
        return further >= AGREEING and self.is_steady() and self.has_risen()

    def is_steady(self) -> bool:
        """Return whether no task has had two outcomes under one skill."""
        return all(len(set(count.values)) <= 1 for count in self.values())

    def fallen(self) -> list[str]:
        """Return the tasks with a lower mean under the candidate."""
        return [task for task in self.tasks if self.pair(task).change < 0]

    def has_risen(self) -> bool:
        """Return whether any task has a higher mean under the candidate."""
        return any(self.pair(task).change > 0 for task in self.tasks)

    def fixed(self) -> list[str]:
        """Return the tasks that credibly improved."""
        return [task for task in self.tasks if self.up(task) >= DECISIVE]

    def broken(self) -> list[str]:
        """Return the tasks that credibly got worse."""
        return [task for task in self.tasks if self.down(task) >= DECISIVE]

    def up(self, task: str) -> float:
        """Return the log e-value that the candidate does better on the task."""
        pair = self.pair(task)
        return log_e(pair.after, pair.after_n, pair.before, pair.before_n)

    def down(self, task: str) -> float:
        """Return the log e-value that the candidate does worse: ``up`` with the arms swapped."""
        return log_e(*self.pair(task))

    def compared(self, tasks: Sequence[str]) -> str:
        """Describe how often the tasks passed under each skill."""
        pairs = [(task, self[INCUMBENT, task], self[CANDIDATE, task]) for task in tasks]
        return named(
            f"{task} (passed {old.passed} of {old.n} before, {new.passed} of {new.n} after)"
            for task, old, new in pairs
        )

    def evidence(self, task: str) -> TaskEvidence:
        """Return the row of a task."""
        old = self[INCUMBENT, task]
        new = self[CANDIDATE, task]
        up = self.up(task)
        down = self.down(task)
        change = change_by(up, down)
        skipped = old.skipped and new.skipped
        left_out = task in self.left_out
        return TaskEvidence(
            task=task,
            incumbent_passed=old.passed,
            incumbent_n=old.n,
            candidate_passed=new.passed,
            candidate_n=new.n,
            incumbent_score=old.mean,
            candidate_score=new.mean,
            e_up=math.exp(up),
            e_down=math.exp(down),
            change=change,
            errors=self.errors[task],
            skipped=skipped,
            left_out=left_out,
        )


def change_by(up: float, down: float) -> Change:
    """Classify a task by the log e-values that it does better and worse."""
    if max(up, down) >= DECISIVE:
        return "fixed" if up > down else "broken"
    return "undecided" if max(up, down) >= 0 else "same"
