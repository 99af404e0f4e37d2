"""What was measured of both arms so far, what it says of the candidate, and how that is told."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_skillopt.gate.data import CANDIDATE, INCUMBENT, TAPE, TaskEvidence
from pytest_skillopt.gate.statistics import log_e

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.gate.data import Arm, Change, MetricName, Sample

DECISIVE = math.log(10)
"""Log e-value from which a single task is reported as fixed or broken."""
MAX_REPLACEMENTS = 3
"""Samples in a row that a task may fail to give before its arm counts as not measurable."""


@dataclass(slots=True)
class OneCount:
    """Measurements of one task under one arm."""

    n: int = 0
    passed: int = 0
    total: float = 0.0
    """Sum of the metric."""
    rounds: list[bool] = field(default_factory=list)
    """Outcomes on the stream ``tape``, in the order of their indices."""
    skipped: bool = False
    failures_in_a_row: int = 0

    @property
    def mean(self) -> float:
        """Mean of the metric, in [0, 1]; 0 where nothing was measured."""
        return self.total / self.n if self.n else 0.0

    @property
    def is_dead(self) -> bool:
        """Whether it is given up: too many infrastructure errors in a row."""
        return self.failures_in_a_row > MAX_REPLACEMENTS


class Counts:
    """The counts of a decision: one for each arm and task."""

    def __init__(self, tasks: Sequence[str], metric: MetricName) -> None:
        self.tasks = list(tasks)
        """Those that count."""
        self.all_tasks = tuple(tasks)
        """With those that were dropped."""
        self.errors: Counter[str] = Counter()
        """Infrastructure errors by task."""
        self.left_out: list[str] = []
        """Tasks that were dropped because they gave nothing but errors."""
        self.measured: set[str] = set()
        """Tasks that have ever passed or failed in this decision, under either arm."""
        self._metric = metric
        self._counts: dict[tuple[Arm, str], OneCount] = {}
        self.forget()

    def __getitem__(self, key: tuple[Arm, str]) -> OneCount:
        return self._counts[key]

    def add(self, sample: Sample) -> bool:
        """Whether the sample needs no replacement."""
        count = self[sample.draw.arm, sample.draw.task]
        if sample.skipped:
            count.skipped = True
        elif sample.passed is None:
            self.errors[sample.draw.task] += 1
            count.failures_in_a_row += 1
            return False
        else:
            self.measured.add(sample.draw.task)
            count.n += 1
            count.passed += sample.passed
            count.total += sample.value(self._metric)
            count.failures_in_a_row = 0
            if sample.draw.stream == TAPE:
                count.rounds.append(sample.passed)
        return True

    def forget(self) -> None:
        """Count anew: what was measured so far has been judged."""
        for task in self.tasks:
            self._counts[INCUMBENT, task], self._counts[CANDIDATE, task] = OneCount(), OneCount()

    def samples(self, arm: Arm) -> int:
        """Measurements of the arm."""
        return sum(self[arm, task].n for task in self.all_tasks)

    def covers(self, arm: Arm) -> bool:
        """Whether the arm was measured on every task that counts."""
        return bool(self.tasks) and all(self[arm, task].n for task in self.tasks)

    def mean(self, arm: Arm, tasks: Sequence[str] = ()) -> float:
        """Mean of the metric over these tasks (the suite's), every task weighing the same."""
        tasks = tasks or self.tasks
        return math.fsum(self[arm, task].mean for task in tasks) / len(tasks)

    def moved(self, tasks: Sequence[str] = ()) -> str:
        """The means of both arms, in words."""
        return change_of(self.mean(INCUMBENT, tasks), self.mean(CANDIDATE, tasks))

    def gain(self, tasks: Sequence[str], missing: int = 0) -> float:
        """Tasks won on balance; one without a sample of the incumbent counts as ``missing``."""
        return math.fsum(
            self[CANDIDATE, task].mean - (old.mean if old.n else missing)
            for task in tasks
            for old in [self[INCUMBENT, task]]
        )

    def strata(self, tasks: Sequence[str], missing: int = 0) -> list[tuple[int, int, int, int]]:
        """Passed and n of the candidate, passed and n of the incumbent, a task each.

        Args:
            missing: passes, of one sample, of an incumbent that has not been sampled.
        """
        pairs = [(self[CANDIDATE, task], self[INCUMBENT, task]) for task in tasks]
        return [
            (new.passed, new.n, old.passed if old.n else missing, old.n or 1) for new, old in pairs
        ]

    def improves(self) -> bool:
        """The literal rule: the candidate's observed suite mean is strictly greater."""
        return self.mean(CANDIDATE) > self.mean(INCUMBENT) + 1e-12

    def fixed(self) -> list[str]:
        """Tasks that credibly improved."""
        return [task for task in self.tasks if self.up(task) >= DECISIVE]

    def broken(self) -> list[str]:
        """Tasks that credibly got worse."""
        return [task for task in self.tasks if self.down(task) >= DECISIVE]

    def up(self, task: str) -> float:
        """Log e-value that the candidate does better on the task."""
        new, old = self[CANDIDATE, task], self[INCUMBENT, task]
        return log_e(new.total, new.n, old.total, old.n)

    def down(self, task: str) -> float:
        """Log e-value that the candidate does worse: the same with the roles swapped."""
        new, old = self[CANDIDATE, task], self[INCUMBENT, task]
        return log_e(old.total, old.n, new.total, new.n)

    def compared(self, tasks: Sequence[str]) -> str:
        """The tasks with how often they passed under either skill."""
        pairs = [(task, self[INCUMBENT, task], self[CANDIDATE, task]) for task in tasks]
        return named(
            f"{task} (passed {old.passed} of {old.n} before, {new.passed} of {new.n} after)"
            for task, old, new in pairs
        )

    def evidence(self) -> tuple[TaskEvidence, ...]:
        """A row for each task, those included that were dropped."""
        return tuple(self._evidence(task) for task in self.all_tasks)

    def _evidence(self, task: str) -> TaskEvidence:
        old, new = self[INCUMBENT, task], self[CANDIDATE, task]
        up, down = self.up(task), self.down(task)
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
            change=change_by(up, down),
            errors=self.errors[task],
            skipped=old.skipped and new.skipped,
            left_out=task in self.left_out,
        )


def change_by(up: float, down: float) -> Change:
    """What a reader is told of a task, by the log e-values that it does better and worse."""
    if max(up, down) >= DECISIVE:
        return "fixed" if up > down else "broken"
    return "undecided" if max(up, down) >= 0 else "same"


def named(tasks: Iterable[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    names = list(dict.fromkeys(tasks))
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def counted(count: int, noun: str) -> str:
    """``1 task``, ``2 tasks``."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def change_of(before: float, after: float) -> str:
    """``56.3 % to 61.2 % (+4.9 points)``; rates in [0, 1]."""
    return f"{before:.1%} to {after:.1%} ({100 * (after - before):+.1f} points)".replace("%", " %")


def by_chance(p_value: float, level: float) -> str:
    """A test in words that need no statistics: its p-value, and the most that is allowed."""
    return (
        f"a skill that changes nothing would seem to gain as much with probability {p_value:.2g}; "
        f"at most {level:.2g} is allowed"
    )


def plainly(log_e: float) -> str:
    """An e-value without false precision, from its logarithm: ``0.4``, ``12``, ``1e+09``."""
    value = math.exp(min(log_e, 700.0))
    if value >= 1e6:
        return f"{value:.0e}"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
