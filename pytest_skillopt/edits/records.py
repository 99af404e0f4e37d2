"""Records of a training: rollouts of the train tasks, patterns of failure, tried edits."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pytest_skillopt.rollouts.rollout import Rollout
    from pytest_skillopt.run.result import EditStatus
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.tasks.task import SkillTask


_VARYING = re.compile(r"""\d+|'[^']*'|"[^"]*"|\s+""")
_SIGNATURE_LENGTH = 120
_OTHERS = 4
"""Most failures of other patterns that an analyst sees of a task."""
CLEARLY_BETTER = 0.2
"""Difference of two scores, in [0, 1], from which one rollout is clearly better than another."""


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """Rollouts of one task; errors and skips are not measurements and are left out."""

    task: SkillTask
    rollouts: tuple[Rollout, ...] = ()

    @classmethod
    def of(cls, task: SkillTask, rollouts: Iterable[Rollout]) -> TaskRecord:
        return cls(task, tuple(rollout for rollout in rollouts if rollout.measured))

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
        return self.mixed or self.spread >= CLEARLY_BETTER

    @property
    def failures(self) -> tuple[Rollout, ...]:
        return tuple(rollout for rollout in self.rollouts if not rollout.passed)

    def other_failures(self, shown: Iterable[Rollout]) -> list[Rollout]:
        """Return the latest failure of each pattern that ``shown`` lacks, at most the last four."""
        known = {TaskRecord(self.task, (rollout,)).pattern for rollout in shown}
        found = {TaskRecord(self.task, (failure,)).pattern: failure for failure in self.failures}
        return [failure for pattern, failure in found.items() if pattern not in known][-_OTHERS:]

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


_SHOWN_PATTERNS = 5
_SHOWN_TEXT = 240

Pattern = tuple[str, str]
"""Place and message of a failure, without the parts that vary between tasks."""


_REFUTED, _PROVEN = 0.1, 0.9
"""Probabilities that an edit helps, below which it is refuted and above which it is proven."""
_SHOWN_EDIT = 400
"""Characters of a sampled edit that are shown."""
MOST_SAMPLED = 20
"""Most sampled edits that are listed."""
_SHOWN_TASKS = 6


@dataclass(frozen=True, slots=True)
class SampledEdit:
    """An edit that samples were spent on, and what it did: one record in the prompts of analysts.

    A search puts a list of these into ``Context.sampled``, those worth most to an analyst first.
    ``effects`` holds train tasks only: a val task must not reach the optimizer.
    """

    edit: Edit
    effect: float
    """Expected change of the mean pass rate of the train tasks, in [-1, 1]."""
    helps: float
    """Probability that the edit raises a pass rate, in [0, 1]."""
    samples: int
    """Samples taken with the edit in the skill, at least 0."""
    effects: Mapping[str, float] = field(default_factory=dict)
    """Expected change of the pass rate, in [-1, 1], by node id of a train task."""

    @property
    def standing(self) -> Literal["helps", "refuted", "not decided"]:
        """Say what is known of it."""
        if self.helps >= _PROVEN:
            return "helps"
        return "refuted" if self.helps <= _REFUTED else "not decided"

    def __str__(self) -> str:
        """Describe it in one line; the tasks that it moved most are named."""
        text = " ".join(redact(self.edit.text).split())[:_SHOWN_EDIT]
        figures = (
            f"{100 * self.effect:+.0f} points, helps with probability {self.helps:.2f}, "
            f"{self.samples} samples"
        )
        moved = sorted(self.effects.items(), key=lambda item: -abs(item[1]))[:_SHOWN_TASKS]
        tasks = ", ".join(f"{task} {100 * change:+.0f}" for task, change in moved)
        return f"{self.standing} ({figures}): {text}" + (f" [{tasks}]" if tasks else "")


def describe_sampled(edits: Sequence[SampledEdit]) -> str:
    """List the first edits with their numbers, from 1, and what each did."""
    listed = enumerate(edits[:MOST_SAMPLED], start=1)
    return "\n".join(f"{number}. {edit}" for number, edit in listed)


class Tried(NamedTuple):
    """The outcome of an edit."""

    status: EditStatus
    times: int
    line: str
    """Description for the optimizer."""


class Memory:
    """The tried edits and the common failures."""

    def __init__(self) -> None:
        self._tried: dict[str, Tried] = {}
        self._patterns: Counter[Pattern] = Counter()
        self.advice = ""
        """Advice of the meta stage on helpful kinds of edits; never part of the skill."""

    def remember(
        self,
        edit: Edit,
        status: EditStatus,
        why: str = "",
    ) -> None:
        """Record the outcome of an edit; the latest replaces earlier ones, equal ones count up."""
        before = self._tried.pop(edit.key, None)
        times = before.times + 1 if before is not None and before.status == status else 1
        line = f"- {status}, {times} times" if times > 1 else f"- {status}"
        line += f": {why}" if why else ""
        line += f": {redact(edit.text)[:_SHOWN_TEXT]}"
        self._tried[edit.key] = Tried(status, times, line)

    def remember_patterns(self, patterns: Iterable[Pattern]) -> None:
        """Count the failures of each pattern."""
        self._patterns.update(pattern for pattern in patterns if any(pattern))

    def render(self, but: Collection[str] = ()) -> str:
        """Write the latest tried edits and common failures.

        ``but`` are the keys of edits that the prompt shows elsewhere.
        """
        ranked = sorted(self._patterns.items(), key=lambda item: (-item[1], item[0]))
        common = [
            f"- seen {times} times: {' '.join(pattern).strip()}"
            for pattern, times in ranked
            if times > 1
        ]
        return "\n".join([*self.tried(but=but), *common[:_SHOWN_PATTERNS]])

    def tried(
        self, limit: int = 20, *, accepted: bool = False, but: Collection[str] = ()
    ) -> list[str]:
        """Describe the latest edits that were not accepted, or those that were.

        An edit that lost once may have lost by chance, and the optimizer would no longer propose
        it; so only edits that lost twice are shown.
        """
        shown = [
            tried.line
            for key, tried in self._tried.items()
            if key not in but
            and (tried.status not in ("given up", "open", "dropped") or tried.times > 1)
            and accepted == (tried.status == "accepted")
        ]
        return shown[-limit:]
