"""The trial of edits on the tasks that asked for them, and the pool of edits that wait for one.

A useful edit makes the tasks pass whose failures led to it, and a useless one leaves them as they
are, so one to five samples tell most of them apart. A trial only decides which edits join the
working skill. It gives no guarantee: the final comparison decides what is accepted.
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
    """A sequential probability ratio test (Wald 1945): open, won or lost by its samples."""

    def __init__(
        self,
        edits: Sequence[Edit],
        document: Document,
        base: Document,
        records: Sequence[TaskRecord],
        parameters: TrialParameters,
        bar: float,
    ) -> None:
        """Open a trial.

        Args:
            edits: one edit, or several that are tried together.
            document: the working skill with them.
            base: the working skill without them.
            records: records of the failing tasks that asked for them; some may be of an older
                working skill.
            parameters: bounds of the trial.
            bar: log likelihood ratio at which the edits have won.
        """
        self.edits = tuple(edits)
        self.document, self.base = document, base
        self.before = {record.task.id: record for record in records}
        self.after = {task: TaskRecord(record.task) for task, record in self.before.items()}
        self._parameters = parameters
        self._bar = bar
        self._credit = dict.fromkeys(self.before, 0.0)
        """By task, passes, and failures further on in the test as a part of a pass."""
        self._taken = dict.fromkeys(self.before, 0)
        """By task, samples taken, including those that could not be measured."""
        self._compared: set[str] = set()
        """Tasks that were sampled without the edits since the trial began."""

    @property
    def log_ratio(self) -> float:
        """Log likelihood ratio of "a share of the tasks is lifted" against "nothing changes"."""
        return sum(map(self._log_ratio, self._failing))

    @property
    def outcome(self) -> Literal["open", "won", "lost"]:
        """``open`` without a task to sample if they all pass without the edits."""
        ratio, at_end = self.log_ratio, not self._next_tasks()
        if not self._failing:
            return "open"
        if ratio >= self._bar or (at_end and sum(self._credit.values()) >= self._samples):
            return "won"
        return "lost" if ratio <= self._parameters.lower or at_end else "open"

    def wants(self, *, ahead: bool = False) -> dict[str, int]:
        """Return the tasks to sample next, with how often; empty if the trial is decided.

        Args:
            ahead: once a task has done better, ask for all samples that a win takes at best.
        """
        if self.outcome != "open":
            return {}
        wanted = dict.fromkeys(self._next_tasks(), 1)
        while ahead and any(self._credit.values()) and self._at_best(wanted) < self._bar:
            left = [t for t in wanted if self._room(t) > wanted[t]]
            if not left or self._samples + sum(wanted.values()) >= self._parameters.most_samples:
                break
            wanted[min(left, key=wanted.__getitem__)] += 1
        return wanted

    def tell(self, found: Mapping[str, Sequence[Rollout]]) -> None:
        """Add samples of the document; those that could not be measured are only counted."""
        for task, rollouts in found.items():
            failures = self.before[task].failures
            self.after[task] = self.after[task].plus(rollouts)
            self._taken[task] += len(rollouts)
            for rollout in rollouts:
                if rollout.passed:
                    self._credit[task] += 1.0
                elif rollout.measured and goes_further(rollout, failures):
                    self._credit[task] += self._parameters.advance

    def compare(self, found: Mapping[str, Sequence[Rollout]]) -> None:
        """Add samples of the skill without the edits, which may pass by now or by luck."""
        for task in found.keys() & self.before.keys():
            self.before[task] = self.before[task].updated(found[task])
            self._compared.add(task)

    def to_compare(self, *, every: bool) -> list[str]:
        """Return tasks that did better, to be sampled once without the edits.

        Args:
            every: include tasks whose record is of the same skill as the trial.
        """
        return [
            task
            for task in self.turned
            if task not in self._compared
            and (every or self.before[task].rollouts[0].request.version != self.base.version)
        ]

    @property
    def turned(self) -> tuple[str, ...]:
        """Tasks that did better in the trial than before it, the clearest first."""
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

    @property
    def _failing(self) -> list[str]:
        """Tasks that fail without the edits, as far as is known."""
        return [task for task, record in self.before.items() if record.rate <= 0.5]

    @property
    def _samples(self) -> int:
        return sum(self._taken.values())

    def _next_tasks(self) -> list[str]:
        """Return the least sampled tasks; among equals those that do well, to win sooner."""
        if self._samples >= self._parameters.most_samples:
            return []
        open_tasks = [task for task in self._failing if self._room(task)]
        order = sorted(open_tasks, key=lambda t: (self._taken[t], -self._credit[t]))
        return order[:_TASKS_A_LOOK]

    def _room(self, task: str) -> int:
        """Return how many samples may still be taken of a task."""
        return self._parameters.most_per_task - self._taken[task]

    def _at_best(self, wanted: Mapping[str, int]) -> float:
        """Return the log likelihood ratio if all of these samples pass."""
        return sum(self._log_ratio(task, wanted.get(task, 0)) for task in self._failing)

    def _log_ratio(self, task: str, more: int = 0) -> float:
        """Return the log likelihood ratio of a task if ``more`` samples of it pass."""
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

    An edit that says the same as a waiting one adds to its support.
    """

    def __init__(self, tries: int) -> None:
        """Create an empty pool; after ``tries`` lost trials an edit is not tried alone again."""
        self._tries = tries
        self._waiting: list[Edit] = []
        self._lost: dict[str, Edit] = {}
        """By key, edits that have lost a trial and did not join since."""
        self._losses: Counter[str] = Counter()
        self._banned: set[str] = set()
        """Keys of edits that are not tried again, by themselves or with others."""

    @property
    def waiting(self) -> list[Edit]:
        """Waiting edits, those with the most support first."""
        return by_support(self._waiting)

    def is_spent(self, edit: Edit) -> bool:
        """Return whether the edit was tried by itself often enough."""
        return edit.key in self._banned or self._losses[edit.key] >= self._tries

    def has_lost(self, edit: Edit) -> bool:
        return self._losses[edit.key] > 0

    def add(self, edit: Edit) -> None:
        """Add an edit that is to be tried."""
        for number, known in enumerate(self._waiting):
            if say_the_same(known, edit):
                self._waiting[number] = unite([known, edit])
                return
        self._waiting.append(edit)

    def take(self, edits: Iterable[Edit]) -> None:
        """Remove edits that are tried now, or do not fit the working skill."""
        keys = {edit.key for edit in edits}
        self._waiting = [edit for edit in self._waiting if edit.key not in keys]
        self._lost = {key: edit for key, edit in self._lost.items() if key not in keys}

    def lose(self, edits: Iterable[Edit], *, alone: bool = True) -> None:
        """Keep edits that have lost a trial, and count the loss if there was only one."""
        for edit in edits:
            self._losses[edit.key] += alone
            self.keep(edit)

    def keep(self, edit: Edit) -> None:
        """Keep an edit that has lost, with all tasks that it was proposed for."""
        if edit.key in self._banned:
            return
        known = self._lost.get(edit.key)
        self._lost[edit.key] = unite([known, edit]) if known else edit

    def ban(self, edit: Edit) -> None:
        """Never try an edit again."""
        self._banned.add(edit.key)
        self.take([edit])

    def forgive(self, edits: Iterable[Edit]) -> None:
        """Keep edits that were dropped after they had joined, as if they had lost one trial."""
        for edit in edits:
            self._losses[edit.key] = 1
            self.keep(edit)

    def reopen(self, tasks: Iterable[str]) -> None:
        """Let lost edits wait again whose tasks the working skill has changed for."""
        changed = set(tasks)
        for key, edit in list(self._lost.items()):
            if not changed.isdisjoint(edit.tasks):
                del self._lost[key], self._losses[key]
                self.add(edit)

    def lost_for(self, task: str) -> list[Edit]:
        """Return the lost edits that a task asked for, those with the most support first."""
        return by_support([edit for edit in self._lost.values() if task in edit.tasks])
