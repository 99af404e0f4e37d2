"""The default search: try every edit alone on the tasks that asked for it, gate what has gathered.

A full gate at every step starves a search: at a few hundred rollouts it leaves a handful of
decisions. So edits are told apart cheaply on train tasks, those that win gather in a working skill,
and the gate is asked seldom, about a bundle that is worth it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.optimizer.allowance import OutOfMeans
from pytest_skillopt.optimizer.bundle import Bundle, Gathered
from pytest_skillopt.optimizer.compose import extend
from pytest_skillopt.optimizer.meta import learn_from_epoch
from pytest_skillopt.optimizer.proposals import Patch, say_the_same, unite
from pytest_skillopt.optimizer.records import TaskRecord
from pytest_skillopt.optimizer.schedule import edit_budget
from pytest_skillopt.optimizer.select import by_support
from pytest_skillopt.optimizer.slow import ask_for_guidance
from pytest_skillopt.optimizer.trial import Trial
from pytest_skillopt.optimizer.vetting import Refusal
from pytest_skillopt.suite.sampler import StopRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.optimizer.bundle import Outcome
    from pytest_skillopt.optimizer.context import Context
    from pytest_skillopt.optimizer.parameters import TrialParameters
    from pytest_skillopt.optimizer.proposals import Proposal
    from pytest_skillopt.optimizer.verdict import Verdict
    from pytest_skillopt.optimizer.workbench import Workbench
    from pytest_skillopt.skill.document import Document

_ANY_NUMBER = 10**6
"""An edit budget that clips nothing: in this search, lines are tried one by one."""


@dataclass(slots=True)
class _Round:
    """What one round did, for its row."""

    records: list[TaskRecord]
    """Of the train tasks, as the round found them."""
    asked: int = 0
    tried: int = 0
    won: int = 0
    verdict: Verdict | None = None
    candidate: str = ""
    edits: int = 0


class TrialSearch:
    """Evidence, analysts, trials, and now and then the gate."""

    def __init__(self, bench: Workbench, parameters: TrialParameters) -> None:
        self._bench = bench
        self._settings = bench.settings
        self._parameters = parameters
        self._bundle = Bundle(bench, parameters)
        self._tasks_per_call = bench.settings.minibatch_size or parameters.tasks_per_call
        self._records: dict[str, TaskRecord] = {}
        """What is known of every train task under the working skill."""
        self._pool: list[Proposal] = []
        """Edits that wait for a trial."""
        self._second: list[Proposal] = []
        """Edits that lost alone and may be tried together with others."""
        self._losses: Counter[str] = Counter()
        self._unmeasurable: set[str] = set()
        """Tasks that gave no measurement; they are asked again with the next fresh evidence."""
        self._asked: Counter[str] = Counter()
        """Analyst calls about a task since its record changed."""
        self._epoch = 1
        self._idle = 0
        self._epoch_start: tuple[Document, dict[str, TaskRecord]] = (bench.incumbent, {})

    def run(self) -> str:
        """Search until there is nothing left to do; the reason in words.

        Raises:
            StopRun: a fault ended the run. At a cap, what has gathered goes to the gate first.
        """
        try:
            reason = self._search()
        except OutOfMeans as end:
            reason = end.reason
        except StopRun as end:
            if end.kind != "cap":
                raise
            reason = end.reason
        self._gate_the_rest()
        return reason

    def _search(self) -> str:
        while True:
            self._look()
            if not self._epoch_start[1]:
                self._epoch_start = (self._bundle.working, dict(self._records))
            if self._everything_passes():
                return "every train task passes"
            row = _Round(list(self._records.values()))
            self._ask(row)
            self._try_lines(row)
            if self._bundle.ripe:
                self._gate(row)
            elif not row.asked and not row.tried:
                stopped = self._rest(row)
                if stopped:
                    return stopped
            self._end_round(row)

    # Evidence.

    def _look(self) -> None:
        """Sample what is not known yet; a task that failed is sampled until that is certain."""
        while wanted := {t.id: 1 for t in self._bench.train if self._is_open(t.id)}:
            found = self._bench.sample(self._bundle.working, wanted, "train")
            for task in self._bench.train:
                if task.id in found:
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

    def _failing(self) -> list[TaskRecord]:
        """Tasks that fail reliably, those that never passed first."""
        least = self._parameters.failures
        failing = [r for r in self._records.values() if r.failed >= least and r.rate <= 0.5]
        return sorted(failing, key=lambda record: record.rate)

    def _everything_passes(self) -> bool:
        measured = [record for record in self._records.values() if record.n]
        return bool(measured) and not any(record.failed for record in measured)

    # Analysts.

    def _ask(self, row: _Round) -> None:
        """Put the reliably failing tasks before analysts, and their edits into the pool."""
        batch: list[TaskRecord] = []
        while not batch and (chosen := self._batch_to_ask()):
            batch = self._refresh(chosen)
        if not batch:
            return
        row.asked = len(batch)
        for record in batch:
            self._asked[record.task.id] += 1
        context = self._context()
        self._bench.context.memory.remember_patterns(record.signature for record in batch)
        patches = self._bench.stages.reflect(batch, context)
        merged = self._bench.stages.aggregate(patches, context.at(budget=_ANY_NUMBER))
        if merged.note:
            self._bench.notes.append(f"step {context.step}: {merged.note}")
        for proposal in merged.proposals:
            self._take_up(proposal, context)

    def _batch_to_ask(self) -> list[TaskRecord]:
        """Failing tasks that nobody was asked about: a few of each way of failing."""
        p = self._parameters
        calls_left = p.search_calls(len(self._bench.train)) - self._bench.context.calls.asked
        room = min(p.calls_per_round, calls_left) // p.calls_per_task * self._tasks_per_call
        ways: Counter[str] = Counter()
        batch: list[TaskRecord] = []
        for record in self._failing():
            signature = record.signature
            if self._asked[record.task.id] or ways[signature] >= p.calls_per_way:
                continue
            if len(batch) < room:
                ways[signature] += p.calls_per_task
                batch.append(record)
        return batch

    def _refresh(self, batch: Sequence[TaskRecord]) -> list[TaskRecord]:
        """Sample the tasks anew whose record is older than the working skill; those still failing.

        An edit that joined for another task may have turned them, and analysts should see how they
        fail under the document in front of them. One sample is cheaper than their calls.
        """
        version = self._bundle.working.version
        stale = [record for record in batch if record.rollouts[0].request.version != version]
        wanted = {record.task.id: 1 for record in stale}
        found = self._bench.sample(self._bundle.working, wanted, "train")
        for record in stale:
            latest = TaskRecord.of(record.task, found[record.task.id])
            if latest.failed:
                latest = latest.plus(record.failures[:1])
            if latest.n:
                self._records[record.task.id] = latest
        failing = {record.task.id: record for record in self._failing()}
        return [failing[record.task.id] for record in batch if record.task.id in failing]

    def _context(self) -> Context:
        settings, step = self._settings, self._bench.step
        budget = edit_budget(
            settings.schedule,
            step - 1,
            settings.epochs * 3,
            start=settings.edit_budget,
            end=settings.min_edit_budget,
        )
        return self._bench.context.at(
            document=self._bundle.working,
            step=step,
            epoch=self._epoch,
            budget=budget,
            minibatch=self._tasks_per_call,
            repeat=self._parameters.calls_per_task * settings.candidates,
        )

    def _take_up(self, proposal: Proposal, context: Context) -> None:
        """Put a proposal into the pool, unless it is known, refused or was tried enough."""
        for i, known in enumerate(self._pool):
            if say_the_same(known, proposal):
                self._pool[i] = unite([known, proposal])
                return
        if self._tried_enough(proposal):
            return
        update = self._bench.stages.update(Patch((proposal,)), context)
        self._bench.refuse(update.refused)
        self._pool += update.applied

    def _tried_enough(self, proposal: Proposal) -> bool:
        """Whether it lost as many trials as an edit may, in this run or an earlier one."""
        if self._losses[proposal.key] >= self._parameters.tries:
            return True
        known = self._bench.context.memory.attempt(proposal)
        return (
            known is not None and known.fate == "failed" and known.times >= self._parameters.tries
        )

    # Trials.

    def _try_lines(self, row: _Round) -> None:
        """Try the pool, the best supported first, several at once on tasks of their own."""
        while not self._bundle.ripe:
            trials = self._next_trials()
            if not trials:
                return
            self._carry_out(trials)
            for trial in trials:
                row.tried += 1
                row.won += self._conclude(trial)

    def _next_trials(self) -> list[Trial]:
        failing = {record.task.id: record for record in self._failing()}
        ordered = self._bench.stages.select(
            Patch(tuple(by_support(self._pool))), self._context().at(budget=_ANY_NUMBER)
        )
        trials: list[Trial] = []
        busy: set[str] = set()
        for line in ordered.proposals:
            asking = [failing[task] for task in line.tasks if task in failing]
            if not asking:
                self._drop(line, "the tasks that asked for it pass by now")
            elif busy.isdisjoint(line.tasks) and len(trials) < self._parameters.lines_at_once:
                trial = self._open_trial([line], asking)
                if trial is not None:
                    trials.append(trial)
                    busy |= set(line.tasks)
        return trials

    def _open_trial(self, lines: Sequence[Proposal], asking: Sequence[TaskRecord]) -> Trial | None:
        document = self._bundle.working
        fitting = []
        for line in lines:
            extended = extend(document, line, self._context())
            if isinstance(extended, Refusal):
                self._bench.refuse([extended])
                self._remove(line)
            else:
                document = extended
                fitting.append(line)
        return Trial(fitting, document, asking, self._parameters) if fitting else None

    def _carry_out(self, trials: Sequence[Trial]) -> None:
        while running := [(trial, wants) for trial in trials if (wants := trial.wants())]:
            found = self._bench.sample_all([(t.document, wants) for t, wants in running], "trial")
            for (trial, _), rollouts in zip(running, found, strict=True):
                trial.tell(rollouts)

    def _conclude(self, trial: Trial) -> bool:
        """Let the winners join the working skill; True when they did."""
        for line in trial.lines:
            self._remove(line)
        if trial.outcome == "won" and self._join(trial):
            return True
        if trial.outcome == "lost":
            self._bench.settle(trial.lines, "failed", trial.describe(), trial.effects)
            for line in trial.lines:
                self._losses[line.key] += 1
            self._second += [
                line for line in trial.lines if self._losses[line.key] < self._parameters.tries
            ]
        return False

    def _join(self, trial: Trial) -> bool:
        document = self._bundle.working
        for line in trial.lines:
            extended = extend(document, line, self._context())
            if isinstance(extended, Refusal):
                self._bench.refuse([extended])
                return False
            document = extended
        self._bundle.add([Gathered(line, trial.turned) for line in trial.lines], document)
        for task, record in trial.after.items():
            if record.n:
                self._records[task] = record
                del self._asked[task]
        self._idle = 0
        return True

    def _try_together(self, row: _Round) -> bool:
        """Try the edits that lost alone once more, those of a task together.

        A task may need more than one of them, or one of them had bad luck; which it was shows when
        each is left out.
        """
        tried = False
        for record in self._failing():
            lines = by_support([p for p in self._second if record.task.id in p.tasks])
            lines = lines[: self._parameters.joint_lines]
            if not lines:
                continue
            asking = [
                other
                for other in self._failing()
                if any(other.task.id in line.tasks for line in lines)
            ]
            trial = self._open_trial(lines, asking)
            if trial is None:
                continue
            self._carry_out([trial])
            tried = True
            row.tried += len(lines)
            row.won += len(lines) * self._conclude(trial)
        self._second.clear()
        return tried

    # The gate.

    def _gate(self, row: _Round) -> None:
        self._absorb(self._bundle.gate(), row)

    def _absorb(self, outcome: Outcome, row: _Round) -> None:
        if outcome.verdict is not None:
            row.verdict, row.candidate, row.edits = (
                outcome.verdict,
                outcome.candidate,
                outcome.edits,
            )
        for line in outcome.given_up:
            self._losses[line.key] += 1
        for task in outcome.unsettled:
            self._records.pop(task, None)
            del self._asked[task]

    def _gate_the_rest(self) -> None:
        """What has gathered when the search ends goes to the gate with the means kept for it."""
        if not self._bundle.lines:
            return
        row = _Round(list(self._records.values()))
        try:
            self._bundle.release()
            self._gate(row)
            if self._bundle.lines:
                self._absorb(self._bundle.take_apart(), row)
        except OutOfMeans as end:
            self._bench.notes.append(f"the last bundle could not be gated: {end.reason}")
        except StopRun as end:
            if end.kind != "cap":
                raise
            self._bench.notes.append(f"the last bundle could not be gated: {end.reason}")
        self._end_round(row)

    # When nothing is left to try.

    def _rest(self, row: _Round) -> str:
        """The search is idle: try what is left, else look afresh; why it ends, if it does."""
        if self._try_together(row):
            return ""
        if self._bundle.lines:
            self._gate_idle(row)
            return ""
        self._idle += 1
        if self._idle >= self._settings.patience:
            return f"{self._idle} rounds of fresh evidence brought no edit that helped"
        if self._epoch >= self._settings.epochs:
            return "all epochs are over"
        self._look_afresh()
        return ""

    def _gate_idle(self, row: _Round) -> None:
        if self._bundle.refused:
            self._absorb(self._bundle.take_apart(), row)
        else:
            self._gate(row)

    def _look_afresh(self) -> None:
        """The end of an epoch: every task is sampled anew, and what was tried is thought over.

        Old failures were partly bad luck, and settled tasks may have moved.
        """
        context = self._context()
        if self._settings.meta_skill:
            learn_from_epoch(context)
        self._epoch += 1
        self._records, self._asked = {}, Counter()
        self._unmeasurable.clear()
        self._look()
        if self._settings.slow_update:
            self._update_slowly(context.at(document=self._bundle.working))

    def _update_slowly(self, context: Context) -> None:
        """Guidance from the comparison of two epochs goes on trial like any edit.

        The epochs' own samples are compared, so that it costs no further ones.
        """
        document, records = self._epoch_start
        self._epoch_start = (self._bundle.working, dict(self._records))
        if not records or document == self._bundle.working:
            return
        pairs = {
            task: (records[task], new) for task, new in self._records.items() if task in records
        }
        chosen = context.random("slow update").sample(
            sorted(pairs), min(len(pairs), self._settings.slow_update_samples)
        )
        proposal = ask_for_guidance({task: pairs[task] for task in chosen}, document, context)
        if proposal is not None:
            self._pool.append(proposal)

    # Accounts.

    def _remove(self, line: Proposal) -> None:
        self._pool = [known for known in self._pool if known != line]

    def _drop(self, line: Proposal, why: str) -> None:
        self._remove(line)
        self._bench.settle([line], "dropped", why)

    def _end_round(self, row: _Round) -> None:
        waiting = len(self._bundle.lines)
        if row.verdict is not None:
            reason = row.verdict.reason
        elif row.tried:
            reason = f"{row.won} of {row.tried} edits helped the tasks that asked for them"
            reason += f"; {waiting} gathered for the gate" if waiting else ""
        else:
            reason = "nothing new was proposed; looking afresh"
        self._bench.end_step(
            epoch=self._epoch,
            records=row.records,
            candidate=row.candidate,
            edits=row.edits if row.verdict else row.won,
            verdict=row.verdict,
            reason=reason,
        )
