"""The trial of an edit on the tasks that asked for it: a sequential test by posterior odds.

A useful rule turns the tasks whose failures called for it, a useless one leaves them as they are,
so one to five samples tell most of them apart. What a trial has seen is kept: an edit that had bad
luck goes on from there. The trial decides only what joins the working skill; it gives no guarantee,
and nothing is accepted on its word.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from pytest_skillopt.edits.records import TaskRecord, goes_further

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_skillopt.search.parameters import TrialParameters
    from pytest_skillopt.search.rates import TaskRates
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.suite.rollouts import Rollout

_TASKS_A_LOOK = 2
_FALL = 0.4
"""Log odds that a further try may lose before it ends."""


class Trial:
    """Samples in; open, won or lost out."""

    def __init__(self, lines: Sequence[Edit], *, removes: bool = False) -> None:
        """Args:
        lines: one edit, or several that are tried together.
        removes: the lines stand in the working skill, and are left out on trial.
        """
        self.lines = tuple(lines)
        self.removes = removes
        self._doubted = False
        self.tries = 0
        """Times that it was opened since what is known of its tasks has changed."""
        self.after: dict[str, TaskRecord] = {}
        self._credit: dict[str, float] = {}
        """Passes, and failures further on in the test at a part of a pass."""
        self._taken: dict[str, int] = {}
        """Samples asked for in this try, those included that could not be measured."""

    @property
    def line(self) -> Edit:
        return self.lines[0]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks that asked for its edits."""
        return tuple(dict.fromkeys(task for line in self.lines for task in line.tasks))

    def open(
        self,
        document: Document,
        records: Sequence[TaskRecord],
        parameters: TrialParameters,
        rates: TaskRates,
        prior: float,
    ) -> None:
        """Begin, or go on where the last try ended.

        Args:
            document: the working skill with the edits (or without those that it removes).
            records: of the failing tasks that asked for them, under the working skill.
            prior: log odds that an edit is useful.
        """
        self.document = document
        self.tries += 1
        self.before = {record.task.id: record for record in records}
        self._parameters, self._rates, self._prior = parameters, rates, prior
        self._taken = dict.fromkeys(self.before, 0)
        for task, record in self.before.items():
            self.after.setdefault(task, TaskRecord(record.task))
            self._credit.setdefault(task, 0.0)
        self._floor = min(parameters.lower, self.odds - _FALL)

    def forget(self, task: str) -> None:
        """The working skill has changed in what matters to this task: it is open again."""
        if self.after.pop(task, None) is not None:
            self._credit.pop(task, None)
            self.tries = 0

    @property
    def odds(self) -> float:
        """Log odds that the edits lift a share of the tasks that asked for them."""
        share = self._parameters.share if len(self.before) > 1 else 1.0
        return self._prior + sum(
            math.log(share * math.exp(min(self._log_factor(task), 50.0)) + 1 - share)
            for task in self.before
        )

    @property
    def outcome(self) -> Literal["open", "won", "lost"]:
        odds = self.odds
        if odds >= self._parameters.upper:
            return "won"
        fell = odds < self._prior
        if (fell and odds <= self._floor) or not self._next_tasks():
            return "lost"
        return "open"

    def wants(self) -> dict[str, int]:
        """Tasks to sample next, once each; empty when the trial is over."""
        return dict.fromkeys(self._next_tasks(), 1) if self.outcome == "open" else {}

    def wants_controls(self) -> list[str]:
        """Tasks to sample without the edits too: where these help, and less is known of them."""
        return [
            task
            for task, before in self.before.items()
            if self._log_factor(task) > 0 and before.n < self.after[task].n
        ]

    def tell(self, found: Mapping[str, Sequence[Rollout]]) -> None:
        """Take in samples of the document; those that are no measurement are only counted."""
        for task, rollouts in found.items():
            failures = self.before[task].failures
            self.after[task] = self.after[task].plus(rollouts)
            self._taken[task] += len(rollouts)
            for rollout in rollouts:
                if rollout.passed:
                    self._credit[task] += 1.0
                elif rollout.measured and goes_further(rollout, failures):
                    self._credit[task] += self._parameters.advance

    def part(self, line: Edit) -> Trial:
        """What a won trial says of one of its edits, without which its tasks fell back."""
        part = Trial([line])
        part.__dict__.update(self.__dict__, lines=(line,))
        part.before = {t: TaskRecord(r.task, r.failures[:1]) for t, r in self.before.items()}
        part.after, part._credit = dict(self.after), dict(self._credit)
        return part

    def doubt(
        self, without: Mapping[str, Sequence[Rollout]], found: Mapping[str, Sequence[Rollout]]
    ) -> None:
        """Take in fresh samples of the working skill without the edit and with it."""
        for task, rollouts in without.items():
            known, fresh = self.before[task], TaskRecord.of(self.before[task].task, rollouts)
            if not self._doubted and fresh.passed:
                known = TaskRecord(known.task, known.failures[:1])
            self.before[task] = known.plus(fresh.rollouts)
        self._doubted = True
        self._taken = dict.fromkeys(self.before, 0)
        self.tell({task: found[task] for task in without})

    @property
    def turned(self) -> tuple[str, ...]:
        """Tasks that did better in the trial than before it, the surest first."""
        better = [task for task in self.before if self._credit[task] > 0]
        return tuple(sorted(better, key=lambda task: -self._log_factor(task)))

    @property
    def effects(self) -> dict[str, float]:
        """Change of the pass rate of each task that was sampled, in [-1, 1]."""
        return {
            task: self.after[task].rate - record.rate
            for task, record in self.before.items()
            if self.after[task].n
        }

    def describe(self) -> str:
        records = [self.after[task] for task in self.before]
        passed, n = sum(r.passed for r in records), sum(r.n for r in records)
        return f"{passed} of {n} samples passed on the tasks that asked for it"

    def _next_tasks(self) -> list[str]:
        """The least sampled tasks, those that do well first: a win is found sooner."""
        if sum(self._taken.values()) >= self._parameters.most_samples:
            return []
        open_tasks = [t for t in self.before if self._taken[t] < self._parameters.most_per_task]
        order = sorted(open_tasks, key=lambda t: (self._taken[t], -self._credit[t]))
        return order[:_TASKS_A_LOOK]

    def _log_factor(self, task: str) -> float:
        before, n = self.before[task], self.after[task].n
        return self._rates.log_factor(self._credit[task], n, before.passed, before.n)
