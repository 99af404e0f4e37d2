"""The default search: try every edit alone on the tasks that asked for it, gate what has gathered.

A full gate at every step starves a search: at a few hundred rollouts it leaves a handful of
decisions. So edits are told apart cheaply on train tasks, those that win gather in a working skill,
and the gate is asked seldom, about a bundle that is worth it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.edits.calls import UNREADABLE
from pytest_skillopt.edits.handover import as_edits
from pytest_skillopt.edits.proposals import Patch
from pytest_skillopt.published.meta import learn_from_epoch
from pytest_skillopt.published.schedule import UNBOUNDED, edit_budget, least_edits
from pytest_skillopt.published.slow import ask_for_guidance
from pytest_skillopt.search.adopted import AdoptedBundle
from pytest_skillopt.search.allowance import OutOfMeans
from pytest_skillopt.search.bundle import Bundle
from pytest_skillopt.search.pool import Pool
from pytest_skillopt.search.search_round import SearchRound
from pytest_skillopt.search.standing import Standing
from pytest_skillopt.search.trials import Trials
from pytest_skillopt.suite.sampler import StopRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.proposals import Proposal
    from pytest_skillopt.edits.records import TaskRecord
    from pytest_skillopt.search.bundle import Outcome
    from pytest_skillopt.search.parameters import TrialParameters
    from pytest_skillopt.search.workbench import Workbench
    from pytest_skillopt.skill.document import Document

_ROUNDS_PER_EPOCH = 3
"""Rounds of an epoch that the schedule of the edit budget reckons with."""


class TrialSearch:
    """Evidence, analysts, trials, and now and then the gate."""

    def __init__(self, bench: Workbench, parameters: TrialParameters) -> None:
        self._bench = bench
        self._settings = bench.settings
        self._parameters = parameters
        self._standing = Standing(bench, parameters)
        self._pool = Pool(bench.context.memory, parameters.tries)
        self._bundle = (AdoptedBundle if bench.sole else Bundle)(bench, parameters)
        self._trials = Trials(
            bench,
            parameters,
            standing=self._standing,
            pool=self._pool,
            bundle=self._bundle,
            context=self._context,
        )
        self._tasks_per_call = bench.settings.minibatch_size or parameters.tasks_per_call
        self._epoch = 1
        self._idle = 0
        """Rounds of fresh evidence since an edit won its trial."""
        self._epoch_start: tuple[Document, list[TaskRecord]] = (bench.incumbent, [])

    def run(self) -> str:
        """Search until there is nothing left to do; the reason in words.

        Raises:
            StopRun: a fault ended the run, or no train task can be measured. At a cap, what has
                gathered goes to the gate first.
        """
        try:
            reason = self._search()
        except OutOfMeans as end:
            reason = end.reason
            self._note_early_end(end.reason, capped=end.capped)
        except StopRun as end:
            if end.kind == UNREADABLE:
                self._gate_the_rest()
            if end.kind != "cap":
                raise
            reason = end.reason
            self._note_early_end(end.reason, capped=True)
        self._gate_the_rest()
        return reason

    def _note_early_end(self, reason: str, *, capped: bool) -> None:
        """With a higher cap the run could go on, and the report offers that."""
        if capped:
            self._bench.ledger.end_early(reason)

    def _search(self) -> str:
        self._standing.look(self._bundle.working)
        self._epoch_start = (self._bundle.working, self._standing.records)
        while not self._standing.all_pass:
            row = SearchRound(self._standing.records)
            self._ask(row)
            self._trials.try_waiting(row)
            if self._bundle.ripe:
                self._absorb(self._bundle.gate(), row)
            elif not row.asked and not row.tried:
                stopped = self._rest(row)
                if stopped:
                    return stopped
            self._end_round(row)
            self._standing.look(self._bundle.working)
        return "every train task passes"

    # Analysts.

    def _ask(self, row: SearchRound) -> None:
        """Put the reliably failing tasks before analysts, and their edits into the pool."""
        batch = self._standing.next_to_ask(self._bundle.working, self._room_for_tasks())
        if not batch:
            return
        row.asked = len(batch)
        context = self._context()
        context.memory.remember_patterns(record.pattern for record in batch)
        unreadable = context.calls.unreadable
        patches = self._bench.stages.reflect(batch, context)
        if context.calls.unreadable > unreadable:
            row.came = context.calls.came
        merged = self._merge(patches, context)
        if merged.note:
            self._bench.ledger.notes.append(f"step {context.step}: {merged.note}")
        for proposal in merged.proposals:
            row.proposed += 1
            if self._pool.has_lost(proposal):
                row.lost_before += 1
                self._bench.ledger.turn_away(proposal, "it lost its trial in an earlier run")
            elif not self._pool.awaits(proposal):
                self._take_in(proposal, context)

    def _take_in(self, proposal: Proposal, context: Context) -> None:
        """Put what the update stage makes of an edit into the pool."""
        handed = self._bench.stages.update(Patch((proposal,)), context)
        update = as_edits(handed, proposal, context)
        if update.note:
            self._bench.ledger.notes.append(f"step {context.step}: {update.note}")
        self._bench.ledger.refuse(update.refused)
        for edit in update.applied:
            if edit == proposal or not (self._pool.has_lost(edit) or self._pool.awaits(edit)):
                self._pool.add([edit])

    def _merge(self, patches: Sequence[Patch], context: Context) -> Patch:
        edits = [patch for patch in patches if patch.body is None]
        merged = self._bench.stages.aggregate(edits, context.at(budget=UNBOUNDED))
        if merged.body is not None or len(edits) < len(patches):
            self._bench.ledger.notes.append(
                f"step {context.step}: a whole new body was left out: this search tries edits one "
                "by one; use --skillopt-search=batch for patches with a body"
            )
        return merged

    def _room_for_tasks(self) -> int:
        """Tasks that analysts may be asked about in this round."""
        p = self._parameters
        calls_left = p.search_calls(len(self._bench.train)) - self._bench.context.calls.asked
        calls = max(0, min(p.calls_per_round, calls_left))
        return calls // p.calls_per_task * self._tasks_per_call

    def _context(self) -> Context:
        settings, step = self._settings, self._bench.ledger.step
        budget = edit_budget(
            settings.schedule,
            step,
            settings.epochs * _ROUNDS_PER_EPOCH,
            start=settings.edit_budget,
            end=least_edits(settings),
        )
        return self._bench.context.at(
            document=self._bundle.working,
            step=step,
            epoch=self._epoch,
            budget=budget,
            minibatch=self._tasks_per_call,
            repeat=self._parameters.calls_per_task * settings.candidates,
        )

    # The gate.

    def _absorb(self, outcome: Outcome, row: SearchRound) -> None:
        """Take in what a visit to the gate has changed."""
        row.note(outcome)
        self._pool.lose(outcome.given_up)
        self._standing.forget(outcome.unsettled)

    def _gate_the_rest(self) -> None:
        """What has gathered when the search ends goes to the gate with the means kept for it."""
        row = SearchRound(self._standing.records)
        waiting = bool(self._bundle.lines)
        try:
            self._bundle.release()
            if waiting and not self._bundle.refused:
                self._absorb(self._bundle.gate(), row)
            if self._bundle.lines:
                self._absorb(self._bundle.take_apart(), row)
            self._bundle.finish()
        except (OutOfMeans, StopRun) as end:
            if isinstance(end, StopRun) and end.kind != "cap":
                raise
            self._bench.ledger.notes.append(f"the last bundle could not be gated: {end.reason}")
        if waiting:
            self._end_round(row)

    # When nothing is left to try.

    def _rest(self, row: SearchRound) -> str:
        """The search is idle: try what is left, else look on; why it ends, if it does."""
        standing = self._standing
        if standing.widen() or standing.ask_again() or standing.look_closer():
            return ""
        self._bench.samples.require_measured(self._bench.train)
        if self._bundle.lines:
            bundle = self._bundle
            self._absorb(bundle.take_apart() if bundle.refused else bundle.gate(), row)
            return ""
        self._trials.try_lost(row)
        if row.tried:
            return ""
        self._idle += 1
        if self._idle >= self._settings.patience:
            return f"{self._idle} rounds of fresh evidence brought no edit that helped"
        if self._epoch >= self._settings.epochs:
            return "all epochs are over"
        self._look_afresh()
        return ""

    def _look_afresh(self) -> None:
        """The end of an epoch: every task is sampled anew, and what was tried is thought over.

        Old failures were partly bad luck, and settled tasks may have moved.
        """
        context = self._context()
        if self._settings.meta_skill:
            learn_from_epoch(context)
        self._epoch += 1
        self._standing.look_afresh(self._bundle.working)
        if self._settings.slow_update:
            self._update_slowly(context)

    def _update_slowly(self, context: Context) -> None:
        """Guidance from the comparison of two epochs goes on trial like any edit.

        The epochs' own samples are compared, so that it costs no further ones.
        """
        document, before = self._epoch_start
        now = {record.task.id: record for record in self._standing.records}
        self._epoch_start = (self._bundle.working, self._standing.records)
        if document == self._bundle.working:
            return
        pairs = {old.task.id: (old, now[old.task.id]) for old in before if old.task.id in now}
        count = min(len(pairs), self._settings.slow_update_samples)
        chosen = context.random("slow update").sample(sorted(pairs), count)
        proposal = ask_for_guidance({task: pairs[task] for task in chosen}, document, context)
        if proposal is not None:
            self._pool.add([proposal])

    def _end_round(self, row: SearchRound) -> None:
        if row.won:
            self._idle = 0
        self._bench.ledger.end_step(
            epoch=self._epoch,
            records=row.records,
            candidate=row.candidate,
            edits=row.edits if row.verdict else row.won,
            verdict=row.verdict,
            reason=row.describe(),
        )
