"""The carrying out of trials: which edits are tried next, and what becomes of them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pytest_skillopt.edits.compose import extend
from pytest_skillopt.edits.proposals import Patch
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.published.schedule import UNBOUNDED
from pytest_skillopt.search.bundle import Gathered
from pytest_skillopt.search.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.proposals import Proposal
    from pytest_skillopt.edits.records import TaskRecord
    from pytest_skillopt.search.bundle import Bundle
    from pytest_skillopt.search.parameters import TrialParameters
    from pytest_skillopt.search.pool import Pool
    from pytest_skillopt.search.search_round import SearchRound
    from pytest_skillopt.search.standing import Standing
    from pytest_skillopt.search.workbench import Workbench


class Trials:
    """Takes edits out of the pool; those that win their trial join the working skill."""

    def __init__(
        self,
        bench: Workbench,
        parameters: TrialParameters,
        *,
        standing: Standing,
        pool: Pool,
        bundle: Bundle,
        context: Callable[[], Context],
    ) -> None:
        """Args:
        standing: the failing tasks; is told how they do with a winner.
        pool: the edits that wait, and those that have lost.
        bundle: the working skill.
        context: gives that of the moment.
        """
        self._bench = bench
        self._parameters = parameters
        self._standing = standing
        self._pool = pool
        self._bundle = bundle
        self._context = context

    def try_waiting(self, row: SearchRound) -> None:
        """Try the pool, the best supported first, several at once on tasks of their own."""
        while not self._bundle.ripe and (trials := self._next_trials()):
            self._carry_out(trials, row)

    def try_lost(self, row: SearchRound) -> None:
        """Try the edits that lost alone once more, those of a task together.

        A task may need more than one of them, or one of them had bad luck; which it was shows when
        each is left out.
        """
        lost = self._pool.take_lost()
        for record in self._standing.failing():
            edits = [edit for edit in lost if record.task.id in edit.tasks]
            edits = edits[: self._parameters.joint_lines]
            lost = [edit for edit in lost if edit not in edits]
            asking = [
                other
                for other in self._standing.failing()
                if any(other.task.id in edit.tasks for edit in edits)
            ]
            trial = self._open_trial(edits, asking) if asking else None
            if trial is not None:
                self._carry_out([trial], row)

    def _next_trials(self) -> list[Trial]:
        failing = {record.task.id: record for record in self._standing.failing()}
        ordered = self._bench.stages.select(
            Patch(self._pool.waiting), self._context().at(budget=UNBOUNDED)
        )
        trials: list[Trial] = []
        busy: set[str] = set()
        for edit in ordered.proposals:
            asking = [failing[task] for task in edit.tasks if task in failing]
            if not asking:
                self._pool.remove(edit)
                self._bench.ledger.settle(
                    [edit], "dropped", "the tasks that asked for it pass by now"
                )
            elif busy.isdisjoint(edit.tasks) and len(trials) < self._parameters.lines_at_once:
                trial = self._open_trial([edit], asking)
                if trial is not None:
                    trials.append(trial)
                    busy |= set(edit.tasks)
        return trials

    def _open_trial(self, edits: Sequence[Proposal], asking: Sequence[TaskRecord]) -> Trial | None:
        """A trial of the edits that fit the working skill; None where none does."""
        document = self._bundle.working
        fitting = []
        for edit in edits:
            self._pool.remove(edit)
            extended = extend(document, edit, self._context())
            if isinstance(extended, Refusal):
                self._bench.ledger.refuse([extended])
            else:
                document = extended
                fitting.append(edit)
        if not fitting:
            return None
        parameters = self._parameters_of_trial(fitting)
        usual = {record.task.id: self._standing.usual_rate(record.task.id) for record in asking}
        return Trial(fitting, document, asking, parameters, usual)

    def _parameters_of_trial(self, edits: Sequence[Proposal]) -> TrialParameters:
        """More samples for reminders alone, which tasks asked for that often pass."""
        p = self._parameters
        if self._context().epoch > 1:
            p = dataclasses.replace(p, upper=p.upper + p.later)
        if any(edit.origin != "appendix" for edit in edits):
            return p
        most = p.lapse_samples
        return dataclasses.replace(p, most_samples=most, most_per_task=most)

    def _carry_out(self, trials: Sequence[Trial], row: SearchRound) -> None:
        """Sample until all are decided, then let the winners join the working skill."""
        while running := [(trial, wants) for trial in trials if (wants := trial.wants())]:
            found = self._bench.samples.take_all(
                [(t.document, wants) for t, wants in running], "trial"
            )
            for (trial, _), rollouts in zip(running, found, strict=True):
                trial.tell(rollouts)
        for trial in trials:
            row.tried += len(trial.lines)
            if trial.outcome == "lost":
                self._bench.ledger.settle(trial.lines, "failed", trial.describe(), trial.effects)
                self._pool.lose(trial.lines)
            elif self._join(trial):
                self._bench.ledger.won(trial.lines, trial.effects)
                row.won += len(trial.lines)

    def _join(self, trial: Trial) -> bool:
        """Add the edits to the working skill, which may have changed during their trial."""
        document = self._bundle.working
        for edit in trial.lines:
            extended = extend(document, edit, self._context())
            if isinstance(extended, Refusal):
                self._bench.ledger.refuse([extended])
                return False
            document = extended
        # Leaving a reminder out takes few samples, which say less than its trial has said.
        joining = [
            Gathered(edit, trial.turned, validated=edit.origin == "appendix")
            for edit in trial.lines
        ]
        self._bundle.add(joining, document)
        self._standing.settle(trial.after)
        return True
