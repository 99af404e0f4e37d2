"""Records of the train tasks under the working skill: rollouts and patterns of failure."""

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
_CLEARLY_BETTER = 0.2
"""Difference of two scores, in [0, 1], from which one rollout is clearly better than another."""


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """Rollouts of one task; errors and skips are not measurements and are left out."""

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
        """Observed pass rate in [0, 1]; 0 for a task without measurement."""
        return self.passed / self.n if self.n else 0.0

    @property
    def mixed(self) -> bool:
        """True if it both passed and failed under one version."""
        return 0 < self.passed < self.n

    @property
    def spread(self) -> float:
        """Largest difference between two scores under one version, in [0, 1]."""
        scores = [rollout.score or 0.0 for rollout in self.rollouts]
        return max(scores) - min(scores) if scores else 0.0

    @property
    def contrasts(self) -> bool:
        """True if rollouts differ clearly: one passed and one failed, or their scores differ."""
        return self.mixed or self.spread >= _CLEARLY_BETTER

    @property
    def failures(self) -> tuple[Rollout, ...]:
        return tuple(rollout for rollout in self.rollouts if not rollout.passed)

    @property
    def successes(self) -> tuple[Rollout, ...]:
        return tuple(rollout for rollout in self.rollouts if rollout.passed)

    @property
    def signature(self) -> str:
        """Text that is equal for tasks with the same pattern of failure; empty without one."""
        return " ".join(self.pattern).strip()[:_SIGNATURE_LENGTH]

    @property
    def pattern(self) -> tuple[str, str]:
        """Place and message of the first failure, without figures and strings; empty if none."""
        if not self.failures:
            return "", ""
        rollout = self.failures[0]
        words = (rollout.feedback or rollout.message).strip().split("\n")[0]
        return rollout.location, _VARYING.sub(" ", words).strip()[:_SIGNATURE_LENGTH]


def pass_rate(records: Sequence[TaskRecord]) -> float | None:
    """Return the mean pass rate of the measured tasks; None if nothing was measured."""
    measured = [record for record in records if record.n]
    return sum(record.rate for record in measured) / len(measured) if measured else None


def goes_further(rollout: Rollout, failures: Sequence[Rollout]) -> bool:
    """Check if a failed rollout got further than all earlier failures of its task.

    Further means a clearly better score, or a failed assertion below all of theirs in the same
    file.
    """
    if not failures:
        return False
    best = max(failure.score or 0.0 for failure in failures)
    if (rollout.score or 0.0) >= best + _CLEARLY_BETTER:
        return True
    place, places = _place(rollout), [_place(failure) for failure in failures]
    return all(p[0] == place[0] and p[1] and p[1] < place[1] for p in places)


def _place(rollout: Rollout) -> tuple[str, int]:
    """Return file and line of a failure; line 0 if it is not known."""
    path, _, line = rollout.location.rpartition(":")
    return (path, int(line)) if path and line.isdigit() else (rollout.location, 0)
