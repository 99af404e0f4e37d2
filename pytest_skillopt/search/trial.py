"""The trial of an edit on the tasks that asked for it: a sequential likelihood ratio.

A useful rule turns the tasks whose failures called for it, a useless one leaves them as they are,
so two to ten samples tell them apart. The trial decides only what joins the working skill; it gives
no guarantee, and nothing is accepted on its word.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from pytest_skillopt.edits.records import TaskRecord, goes_further

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_skillopt.edits.proposals import Proposal
    from pytest_skillopt.search.parameters import TrialParameters
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.suite.rollouts import Rollout

_TASKS_A_LOOK = 2
_LEAST_RATE, _LARGEST_RATE = 0.1, 0.7
"""Bounds of the pass rate that a task is taken to have without the edit."""


class Trial:
    """Samples in; open, won or lost out."""

    def __init__(
        self,
        lines: Sequence[Proposal],
        document: Document,
        records: Sequence[TaskRecord],
        parameters: TrialParameters,
        usual: Mapping[str, float] | None = None,
    ) -> None:
        """Args:
        lines: one edit, or several that are tried together.
        document: the working skill with them.
        records: of the failing tasks that asked for them, under the working skill.
        usual: pass rate of the tasks over the whole search, where it is known.
        """
        self.lines = tuple(lines)
        self.document = document
        self.before = {record.task.id: record for record in records}
        self.after = {task: TaskRecord(record.task) for task, record in self.before.items()}
        self._parameters = parameters
        self._usual = usual or {}
        self._credit = dict.fromkeys(self.before, 0.0)
        """Passes, and failures further on in the test at a part of a pass."""
        self._tried = dict.fromkeys(self.before, 0)
        """Samples asked for, those included that could not be measured."""

    @property
    def samples(self) -> int:
        return sum(record.n for record in self.after.values())

    @property
    def log_ratio(self) -> float:
        """Log likelihood ratio of "it lifts a share of its tasks" against "it does nothing"."""
        return sum(self._log_ratio(task) for task in self.before)

    @property
    def outcome(self) -> Literal["open", "won", "lost"]:
        ratio = self.log_ratio
        if ratio >= self._parameters.upper:
            return "won"
        if ratio <= self._parameters.lower or not self._next_tasks():
            return "lost"
        return "open"

    def wants(self) -> dict[str, int]:
        """Tasks to sample next, once each; empty when the trial is over."""
        return dict.fromkeys(self._next_tasks(), 1) if self.outcome == "open" else {}

    def tell(self, found: Mapping[str, Sequence[Rollout]]) -> None:
        """Take in samples of the document; those that are no measurement are only counted."""
        for task, rollouts in found.items():
            failures = self.before[task].failures
            self.after[task] = self.after[task].plus(rollouts)
            self._tried[task] += len(rollouts)
            for rollout in rollouts:
                if rollout.passed:
                    self._credit[task] += 1.0
                elif rollout.measured and goes_further(rollout, failures):
                    self._credit[task] += self._parameters.advance

    @property
    def turned(self) -> tuple[str, ...]:
        """Tasks that did better in the trial than before it."""
        return tuple(task for task, credit in self._credit.items() if credit > 0)

    @property
    def effects(self) -> dict[str, float]:
        """Change of the pass rate of each task that was sampled, in [-1, 1]."""
        return {
            task: after.rate - self.before[task].rate
            for task, after in self.after.items()
            if after.n
        }

    def describe(self) -> str:
        passed = sum(record.passed for record in self.after.values())
        return f"{passed} of {self.samples} samples passed on the tasks that asked for it"

    def _next_tasks(self) -> list[str]:
        """The least sampled tasks, those that do well first: a win is found sooner."""
        if sum(self._tried.values()) >= self._parameters.most_samples:
            return []
        open_tasks = [t for t in self.before if self._tried[t] < self._parameters.most_per_task]
        order = sorted(open_tasks, key=lambda t: (self._tried[t], -self._credit[t]))
        return order[:_TASKS_A_LOOK]

    def _log_ratio(self, task: str) -> float:
        n, credit = self.after[task].n, self._credit[task]
        before = self.before[task]
        plain = max((before.passed + 0.5) / (before.n + 1), self._usual.get(task, 0.0))
        plain = min(max(plain, _LEAST_RATE), _LARGEST_RATE)
        lifted = max(self._parameters.lifted, plain + 0.2)
        share = self._parameters.share
        gain = credit * math.log(lifted / plain) + (n - credit) * math.log(
            (1 - lifted) / (1 - plain)
        )
        return math.log(share * math.exp(gain) + 1 - share)
