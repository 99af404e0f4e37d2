"""The rollouts of train tasks in a search: which failures analysts see, and whether they repeat."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from pytest_skillopt.edits.records import CLEARLY_BETTER, TaskRecord
from pytest_skillopt.gate.statistics import agreement, is_flaky
from pytest_skillopt.search.model import Outcome
from pytest_skillopt.search.places import Place
from pytest_skillopt.untrusted import bound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_skillopt.rollouts.rollout import Rollout
    from pytest_skillopt.search.choices import Idea
    from pytest_skillopt.search.forms import Floats
    from pytest_skillopt.tasks.task import SkillTask

_SHOWN = 4
"""Latest rollouts of a task that analysts are shown, with its latest failure."""
_UNMEASURED = 3
"""Samples of a task without a measurement from which it is sampled no more."""
_ASSERTIONS = ("AssertionError", "ReplyError")
"""Exceptions of failed assertions; any other one may be a mistake in the test."""
_MOST_SHOWN = 200
"""Characters of an error that a note shows."""


class Observations:
    """The rollouts by the number of their task."""

    def __init__(self, tasks: Sequence[SkillTask]) -> None:
        self.with_idea: Counter[Idea] = Counter()
        """Measured samples with each idea in the document."""
        self._tasks = tasks
        self._failures: dict[int, Rollout] = {}
        """Latest failure by task; none after a pass with kept ideas that this one lacked."""
        self._failed_with: dict[int, frozenset[Idea]] = {}
        """Ideas in the document of the latest failure by task."""
        self._latest: defaultdict[int, list[Rollout]] = defaultdict(list)
        """Latest measured rollouts by task."""
        self._outcomes: defaultdict[tuple[int, frozenset[Idea]], list[bool]] = defaultdict(list)
        """Outcomes of each task under each document."""
        self._missing: Counter[int] = Counter()
        """Number of samples in a row that could not be measured, by task."""

    def add(
        self, task: int, ideas: frozenset[Idea], rollout: Rollout, kept: frozenset[Idea]
    ) -> Outcome | None:
        """Add a rollout of a task under a document with these ideas.

        Args:
            task: its number.
            ideas: those in the document.
            rollout: what came of it.
            kept: the ideas that are kept now.

        Returns:
            The outcome that the model learns; None if the rollout was not measured.
        """
        if not rollout.measured:
            self._missing[task] += 1
            return None
        self._missing[task] = 0
        self.with_idea.update(ideas)
        self._outcomes[task, ideas].append(rollout.passed)
        self._latest[task] = [*self._latest[task], rollout][-_SHOWN:]
        if not rollout.passed:
            self._failures[task] = rollout
            self._failed_with[task] = ideas
        elif kept <= ideas and not kept <= self._failed_with.get(task, kept):
            self._failures.pop(task, None)
        return Outcome(task, ideas, failed_at(rollout))

    def is_unmeasurable(self, task: int) -> bool:
        """Return whether too many samples of a task in a row were no measurement."""
        return self._missing[task] >= _UNMEASURED

    def is_measured(self, task: int) -> bool:
        """Return whether any rollout of a task was measured."""
        return bool(self._latest[task])

    @property
    def failing(self) -> list[int]:
        """Tasks with a failure that analysts can be shown."""
        return [task for task in self._failures if not self.is_unmeasurable(task)]

    def record(self, task: int) -> TaskRecord:
        """Return what analysts are shown of a failing task."""
        latest = self._latest[task]
        failure = self._failures[task]
        shown = latest if failure in latest else [failure, *latest]
        return TaskRecord(self._tasks[task], tuple(shown))

    def records(self) -> list[TaskRecord]:
        """Return the latest rollout of each task."""
        return [
            TaskRecord(task, tuple(self._latest[number][-1:]))
            for number, task in enumerate(self._tasks)
        ]

    def agreement(self, rates: Callable[[frozenset[Idea]], Floats]) -> float | None:
        """Return the chance that samples of one task and document agree; None if any do not.

        ``rates`` returns the expected pass rate of each task under a document with some ideas.
        """
        chance = 1.0
        for (task, ideas), outcomes in self._outcomes.items():
            if len(set(outcomes)) > 1:
                return None
            rate = float(rates(ideas)[task]) if len(outcomes) > 1 else 0.0
            if is_flaky(rate):
                chance *= agreement(rate, len(outcomes))
        return chance

    def common_error(self) -> str:
        """Return a sentence if the latest sample of every task ends in one error at one place."""
        samples = [sample for record in self.records() for sample in record.rollouts]
        ends = {(sample.message.partition(":")[0], sample.location) for sample in samples}
        (error, place), *others = ends or {("", "")}
        if others or not error.endswith("Error") or error in _ASSERTIONS:
            return ""
        first = bound(samples[0].message.partition("\n")[0], _MOST_SHOWN, 0)
        return f"every rollout ends in one error at {place}, {first}: is the test wrong?"


def failed_at(rollout: Rollout) -> Place | None:
    """Return how far a failed sample got, by its score, then by its line; None if it passed."""
    if rollout.passed:
        return None
    level = int(round((rollout.score or 0.0) / CLEARLY_BETTER, 6))
    return Place(level, rollout.line)
