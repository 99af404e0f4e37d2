"""The trial of edits on the tasks that asked for them, and the edits that wait for one.

A useful rule turns the tasks whose failures called for it, a useless one leaves them as they are,
so one to five samples tell most of them apart. The trial decides only what joins the working skill;
it gives no guarantee, and nothing is accepted on its word.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Literal

from pytest_skillopt.edits.combine import by_support, say_the_same, unite
from pytest_skillopt.edits.records import TaskRecord, goes_further

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_skillopt.search.parameters import TrialParameters
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.suite.rollouts import Rollout

_TASKS_A_LOOK = 2
_LEAST_RATE, _LARGEST_RATE = 0.1, 0.7
"""Bounds of the pass rate that a task is taken to have without the edit."""
_LEAST_LIFT = 0.2
"""Smallest rise of a pass rate that a useful edit is taken to cause."""


class Trial:
    """A sequential likelihood ratio (Wald 1945): samples in; open, won or lost out."""

    def __init__(
        self,
        edits: Sequence[Edit],
        document: Document,
        records: Sequence[TaskRecord],
        parameters: TrialParameters,
        bar: float,
    ) -> None:
        """Args:
        edits: one edit, or several that are tried together.
        document: the working skill with them.
        records: of the failing tasks that asked for them, under the working skill.
        bar: log likelihood ratio at which they have won.
        """
        self.edits = tuple(edits)
        self.document = document
        self.before = {record.task.id: record for record in records}
        self.after = {task: TaskRecord(record.task) for task, record in self.before.items()}
        self._parameters = parameters
        self._bar = bar
        self._most = parameters.most_samples
        self._credit = dict.fromkeys(self.before, 0.0)
        """Passes, and failures further on in the test at a part of a pass."""
        self._taken = dict.fromkeys(self.before, 0)
        """Samples asked for, those included that could not be measured."""

    @property
    def log_ratio(self) -> float:
        """Log likelihood ratio of "they lift a share of these tasks" against "they do nothing"."""
        return sum(self._log_ratio(task) for task in self.before)

    @property
    def outcome(self) -> Literal["open", "won", "lost"]:
        ratio = self.log_ratio
        if ratio >= self._bar:
            return "won"
        if ratio <= self._parameters.lower or not self._next_tasks():
            return "lost"
        return "open"

    def wants(self, *, ahead: bool = False) -> dict[str, int]:
        """Tasks to sample next, with how often; empty when the trial is over.

        Args:
            ahead: once a task has done better, ask for all samples that a win takes at best.
        """
        if self.outcome != "open":
            return {}
        wanted = dict.fromkeys(self._next_tasks(), 1)
        while ahead and any(self._credit.values()) and self._at_best(wanted) < self._bar:
            left = [t for t in wanted if self._room(t) > wanted[t]]
            if not left or sum(self._taken.values()) + sum(wanted.values()) >= self._most:
                break
            wanted[min(left, key=wanted.__getitem__)] += 1
        return wanted

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

    @property
    def turned(self) -> tuple[str, ...]:
        """Tasks that did better in the trial than before it, the surest first."""
        better = [task for task in self.before if self._credit[task] > 0]
        return tuple(sorted(better, key=lambda task: -self._log_ratio(task)))

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
        n = sum(record.n for record in self.after.values())
        return f"{passed} of {n} samples passed on the tasks that asked for it"

    def _next_tasks(self) -> list[str]:
        """The least sampled tasks, those that do well first: a win is found sooner."""
        if sum(self._taken.values()) >= self._most:
            return []
        open_tasks = [task for task in self.before if self._room(task)]
        order = sorted(open_tasks, key=lambda t: (self._taken[t], -self._credit[t]))
        return order[:_TASKS_A_LOOK]

    def _room(self, task: str) -> int:
        """Samples that may still be taken of a task."""
        return self._parameters.most_per_task - self._taken[task]

    def _at_best(self, wanted: Mapping[str, int]) -> float:
        """The log likelihood ratio if all of these samples pass."""
        return sum(self._log_ratio(task, wanted.get(task, 0)) for task in self.before)

    def _log_ratio(self, task: str, more: int = 0) -> float:
        """Args:
        more: samples that are taken to pass beside those that there are.
        """
        before, n, credit = self.before[task], self.after[task].n, self._credit[task]
        n, credit = n + more, credit + more
        plain = (before.passed + 0.5) / (before.n + 1)
        plain = min(max(plain, _LEAST_RATE), _LARGEST_RATE)
        lifted = max(self._parameters.lifted, plain + _LEAST_LIFT)
        gain = credit * math.log(lifted / plain)
        gain += (n - credit) * math.log((1 - lifted) / (1 - plain))
        share = self._parameters.share
        return math.log(share * math.exp(gain) + 1 - share)


class Pool:
    """The edits that wait for a trial, and those that have lost one.

    One that says the same as another that waits adds to its support.
    """

    def __init__(self, tries: int) -> None:
        """Args:
        tries: lost trials after which an edit is not tried alone again.
        """
        self._tries = tries
        self._waiting: list[Edit] = []
        self._lost: dict[str, Edit] = {}
        """By key, edits that have lost a trial and did not join since."""
        self._losses: Counter[str] = Counter()
        self._banned: set[str] = set()
        """Keys of edits that are not tried again, alone or with others."""

    @property
    def waiting(self) -> list[Edit]:
        """The best supported first."""
        return by_support(self._waiting)

    def is_spent(self, edit: Edit) -> bool:
        """Whether the edit was tried alone often enough."""
        return edit.key in self._banned or self._losses[edit.key] >= self._tries

    def add(self, edit: Edit) -> None:
        """Let an edit wait for its trial."""
        for number, known in enumerate(self._waiting):
            if say_the_same(known, edit):
                self._waiting[number] = unite([known, edit])
                return
        self._waiting.append(edit)

    def take(self, edits: Iterable[Edit]) -> None:
        """These edits wait no more: they are tried, or do not fit."""
        keys = {edit.key for edit in edits}
        self._waiting = [edit for edit in self._waiting if edit.key not in keys]
        self._lost = {key: edit for key, edit in self._lost.items() if key not in keys}

    def lose(self, edits: Iterable[Edit], *, alone: bool = True) -> None:
        """Keep edits that have lost a trial, and count it where they were tried alone."""
        for edit in edits:
            self._losses[edit.key] += alone
            self.keep(edit)

    def keep(self, edit: Edit) -> None:
        """Remember for which tasks an edit that has lost was proposed."""
        if edit.key in self._banned:
            return
        known = self._lost.get(edit.key)
        self._lost[edit.key] = unite([known, edit]) if known else edit

    def ban(self, edit: Edit) -> None:
        """Never try an edit again."""
        self._banned.add(edit.key)
        self.take([edit])

    def forgive(self, edits: Iterable[Edit]) -> None:
        """Edits that had joined and were left out again may be tried as if they had lost once."""
        for edit in edits:
            self._losses[edit.key] = 1
            self.keep(edit)

    def reopen(self, tasks: Iterable[str]) -> None:
        """The working skill has changed for these tasks: what they asked for may help now."""
        changed = set(tasks)
        for key, edit in list(self._lost.items()):
            if not changed.isdisjoint(edit.tasks):
                del self._lost[key], self._losses[key]
                self.add(edit)

    def lost_for(self, task: str) -> list[Edit]:
        """Edits that a task asked for and that have lost, the best supported first."""
        return by_support([edit for edit in self._lost.values() if task in edit.tasks])
