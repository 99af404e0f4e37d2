"""The records of the train tasks under the working skill, and the tasks to ask analysts about."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from pytest_skillopt.edits.records import TaskRecord
from pytest_skillopt.untrusted import bound

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_skillopt.search.parameters import TrialParameters
    from pytest_skillopt.search.samples import Activity
    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.suite.rollouts import Rollout

_ASSERTIONS = ("AssertionError", "ReplyError")
"""Exceptions of failed assertions; any other one may be a mistake in the test."""
_MOST_SHOWN = 200
"""Characters of an error that a note shows."""


class TrainTasks:
    """The records of the train tasks; a task keeps its record while the skill changes."""

    def __init__(self, state: TrainingState, parameters: TrialParameters) -> None:
        self._state = state
        self._parameters = parameters
        order = list(state.train)
        state.context.at(step=0).random("first look").shuffle(order)
        part = max(parameters.least_look, math.ceil(parameters.look * len(order)))
        self.few = state.width // parameters.few
        """Samples or tasks of the least round that is taken by itself."""
        self._size = state.settings.batch_size or part
        self._seen = order[: self._size]
        self._unseen = order[self._size :]
        self._records: dict[str, TaskRecord] = {}
        self._asked: set[str] = set()
        """Tasks that analysts were asked about since their record changed."""
        self._turns = 1
        self._unmeasurable: set[str] = set()
        """Tasks that could not be measured; the next sampling of all tasks includes them."""

    @property
    def records(self) -> list[TaskRecord]:
        return list(self._records.values())

    @property
    def all_pass(self) -> bool:
        """Whether every task was sampled and no measured one has failed."""
        if self._unseen or any(self._is_open(task.id) for task in self._seen):
            return False
        measured = [record for record in self._records.values() if record.n]
        return bool(measured) and all(not record.failed for record in measured)

    def common_error(self) -> str:
        """Return a note if every sample ends in one error at one place of the test."""
        samples = [sample for record in self.records for sample in record.rollouts]
        ends = {(sample.message.partition(":")[0], sample.location) for sample in samples}
        (error, place), *others = ends or {("", "")}
        if others or not error.endswith("Error") or error in _ASSERTIONS:
            return ""
        first = bound(samples[0].message.partition("\n")[0], _MOST_SHOWN, 0)
        return f"every rollout ends in one error at {place}, {first}: is the test wrong?"

    def failing(self) -> list[TaskRecord]:
        """Return the tasks that fail reliably, by rising pass rate."""
        least = self._parameters.failures
        failing = [r for r in self._records.values() if r.failed >= least and r.rate <= 0.5]
        return sorted(failing, key=lambda record: record.rate)

    def look(self, document: Document) -> bool:
        """Sample tasks without a clear record; return whether there were any."""
        unknown = any(self._is_open(task.id) for task in self._seen)
        self._state.samples.carry_out(self.sampling(document, self.few))
        return unknown

    def sampling(self, document: Document, least: int = 0) -> Activity:
        """Yield samples of tasks without a clear record, more at once if workers are idle.

        A task that failed is sampled again, until it has failed ``failures`` times or passed more
        often. After the first round, fewer than ``least`` tasks wait for a later call.
        """
        rounds = 0
        while unknown := [task for task in self._seen if self._is_open(task.id)]:
            if rounds and len(unknown) < least:
                return
            rounds += 1
            at_once = min(self._parameters.failures, self._state.width // len(unknown))
            wanted = {t.id: 1 if t.id in self._records else max(1, at_once) for t in unknown}
            (found,) = yield "train", [(document, wanted)]
            for task in unknown:
                known = self._records.get(task.id, TaskRecord(task))
                self._records[task.id] = known.plus(found[task.id])
                if self._records[task.id].n == known.n:
                    self._unmeasurable.add(task.id)

    def _is_open(self, task: str) -> bool:
        if task in self._unmeasurable:
            return False
        record = self._records.get(task)
        if record is None or record.n == 0:
            return True
        least = self._parameters.failures
        return 0 < record.failed < least and record.n <= least

    def widen(self) -> bool:
        """Include further tasks from now on; return False if there are none.

        A part of the tasks shows most of the defects, and the edits for it often fix the others
        before they are sampled.
        """
        more, self._unseen = self._unseen[: self._size], self._unseen[self._size :]
        self._seen += more
        return bool(more)

    def ask_again(self) -> bool:
        """Let analysts be asked once more about failing tasks; return False after some turns."""
        if self._turns >= self._parameters.turns or not self.failing():
            return False
        self._turns += 1
        self._asked.clear()
        return True

    def discard(self) -> None:
        """Discard all records, so that all tasks are sampled again.

        Earlier failures were partly bad luck, and later edits may have changed other tasks.
        """
        self._records.clear()
        self._asked.clear()
        self._turns = 1
        self._unmeasurable.clear()

    def settle(self, records: Iterable[TaskRecord]) -> None:
        """Replace records by those under the document that is the working skill now."""
        for record in records:
            if record.n:
                self._records[record.task.id] = record
                self._asked.discard(record.task.id)

    def add(self, records: Iterable[TaskRecord]) -> None:
        """Add samples of tasks under the working skill with an edit that changed nothing."""
        for record in records:
            if known := self._records.get(record.task.id):
                self._records[record.task.id] = known.plus(record.rollouts)

    def update(self, found: Mapping[str, Sequence[Rollout]]) -> None:
        """Add samples of tasks under the working skill; older ones hardly count beside them."""
        for task, rollouts in found.items():
            if known := self._records.get(task):
                self._records[task] = known.updated(rollouts)

    def forget(self, tasks: Iterable[str]) -> None:
        """Discard the records of passing tasks, since an edit that they asked for is dropped."""
        for task in tasks:
            if task in self._records and self._records[task].rate > 0.5:
                del self._records[task]
                self._asked.discard(task)

    def forget_failing(self) -> None:
        """Discard the records of failing tasks, which a dropped edit may have broken."""
        for record in self.failing():
            del self._records[record.task.id]
            self._asked.discard(record.task.id)

    @property
    def unasked(self) -> int:
        """Number of failing tasks that analysts were not asked about."""
        return len(self._choose(len(self._records)))

    def next_to_ask(self, document: Document, tasks: int) -> list[TaskRecord]:
        """Return failing tasks for analysts, a few of each pattern of failure, and mark them.

        Args:
            document: the working skill.
            tasks: their largest number.
        """
        batch: list[TaskRecord] = []
        while not batch and (chosen := self._choose(tasks)):
            batch = self._refresh(chosen, document)
        self._asked |= {record.task.id for record in batch}
        return batch

    def calls_per_task(self) -> int:
        """Return the analyst calls about a failing task: more, the fewer tasks fail at the start.

        They cost no samples, and if few tasks ask for edits, most samples of trials are left.
        """
        p = self._parameters
        first = [r.passed for r, *_ in self._state.samples.at_start().values() if r.measured]
        failed = first.count(False)
        often = p.calls_per_task * len(first) // (2 * failed) if failed else 0
        return max(p.calls_per_task, min(p.most_calls_per_task, often))

    def _choose(self, tasks: int) -> list[TaskRecord]:
        p = self._parameters
        ways: Counter[str] = Counter()
        chosen: list[TaskRecord] = []
        for record in self.failing():
            if record.task.id in self._asked or ways[record.signature] >= p.tasks_per_way:
                continue
            ways[record.signature] += 1
            chosen.append(record)
        return chosen[:tasks]

    def _refresh(self, chosen: Sequence[TaskRecord], document: Document) -> list[TaskRecord]:
        """Sample tasks again whose record is older than the document; return those that still fail.

        An edit for another task may have fixed them, and one sample costs less than the analyst
        calls.
        """
        stale = [r for r in chosen if r.rollouts[0].request.version != document.version]
        found = self._state.samples.take(document, {r.task.id: 1 for r in stale}, "train")
        self.update(found)
        failing = {record.task.id: record for record in self.failing()}
        return [failing[record.task.id] for record in chosen if record.task.id in failing]
