"""What is known of a train task under the working skill: its rollouts, and how it fails."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.suite.rollouts import Rollout
    from pytest_skillopt.suite.tasks import SkillTask

_VARYING = re.compile(r"""\d+|'[^']*'|"[^"]*"|\s+""")
_SIGNATURE_LENGTH = 120


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """Rollouts of one task; errors and skips are no measurements and are left out."""

    task: SkillTask
    rollouts: tuple[Rollout, ...] = ()

    @classmethod
    def of(cls, task: SkillTask, rollouts: Iterable[Rollout]) -> TaskRecord:
        return cls(task, tuple(rollout for rollout in rollouts if rollout.measured))

    def plus(self, rollouts: Iterable[Rollout]) -> TaskRecord:
        return TaskRecord.of(self.task, (*self.rollouts, *rollouts))

    @property
    def n(self) -> int:
        return len(self.rollouts)

    @property
    def passed(self) -> int:
        return sum(rollout.passed for rollout in self.rollouts)

    @property
    def failed(self) -> int:
        return self.n - self.passed

    @property
    def rate(self) -> float:
        """Observed pass rate in [0, 1]; 0 for a task that was never measured."""
        return self.passed / self.n if self.n else 0.0

    @property
    def mixed(self) -> bool:
        """Both passed and failed under one text: a lapse rather than a defect, and a contrast."""
        return 0 < self.passed < self.n

    @property
    def failures(self) -> tuple[Rollout, ...]:
        return tuple(rollout for rollout in self.rollouts if not rollout.passed)

    @property
    def successes(self) -> tuple[Rollout, ...]:
        return tuple(rollout for rollout in self.rollouts if rollout.passed)

    @property
    def signature(self) -> str:
        """Where and how it fails, the same for tasks that fail alike; empty without a failure."""
        return failure_signature(self.failures[0]) if self.failures else ""


def failure_signature(rollout: Rollout) -> str:
    """Place and message of a failure without the figures and strings that vary between tasks."""
    words = rollout.feedback or rollout.message
    first = next((line for line in words.split("\n") if line.strip()), "")
    return f"{rollout.location} {_VARYING.sub(' ', first)}".strip()[:_SIGNATURE_LENGTH]


def pass_rate(records: Sequence[TaskRecord]) -> float | None:
    """Mean over the measured tasks of their pass rate; None when nothing was measured."""
    measured = [record for record in records if record.n]
    return sum(record.rate for record in measured) / len(measured) if measured else None
