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
_CLEARLY_BETTER = 0.2
"""Rise of a soft score, in [0, 1], from which a failure counts as further on."""


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
        return " ".join(self.pattern).strip()[:_SIGNATURE_LENGTH]

    @property
    def pattern(self) -> tuple[str, str]:
        """The same in two parts, place and message without the figures and strings that vary
        between tasks; both empty without a failure."""
        if not self.failures:
            return "", ""
        rollout = self.failures[0]
        words = (rollout.feedback or rollout.message).strip().split("\n")[0]
        return rollout.location, _VARYING.sub(" ", words).strip()[:_SIGNATURE_LENGTH]


def pass_rate(records: Sequence[TaskRecord]) -> float | None:
    """Mean over the measured tasks of their pass rate; None when nothing was measured."""
    measured = [record for record in records if record.n]
    return sum(record.rate for record in measured) / len(measured) if measured else None


def goes_further(rollout: Rollout, failures: Sequence[Rollout]) -> bool:
    """Whether a failed rollout got further than every one of the earlier failures of its task.

    Further is a clearly better score, or a failed assertion below all theirs in the same file: what
    failed before holds now, and something after it does not.
    """
    if not failures:
        return False
    best = max(failure.score or 0.0 for failure in failures)
    if (rollout.score or 0.0) >= best + _CLEARLY_BETTER:
        return True
    place, places = _place(rollout), [_place(failure) for failure in failures]
    return all(p[0] == place[0] and p[1] and p[1] < place[1] for p in places)


def _place(rollout: Rollout) -> tuple[str, int]:
    """File and line of a failure; line 0 where it is not known."""
    path, _, line = rollout.location.rpartition(":")
    return (path, int(line)) if path and line.isdigit() else (rollout.location, 0)
