"""The default search: try every edit on the tasks that asked for it, alone, then with others.

A gate at every step would leave a few hundred rollouts only a handful of decisions. So edits are
tried cheaply on train tasks, those that win their trial join the working skill, and the final
comparison decides about all of them together.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_skillopt.edits.combine import Patch, unite
from pytest_skillopt.edits.context import UNBOUNDED
from pytest_skillopt.edits.update import apply_each, as_edits, findable, rebuild
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.search.ablation import Ablation
from pytest_skillopt.search.budget import ABLATION, OutOfBudget
from pytest_skillopt.search.harm import Harm
from pytest_skillopt.search.train_tasks import TrainTasks
from pytest_skillopt.search.trial import Pool, Trial
from pytest_skillopt.suite.sampler import Stop, StopRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.records import TaskRecord
    from pytest_skillopt.search.final_comparison import FinalComparison
    from pytest_skillopt.search.parameters import TrialParameters
    from pytest_skillopt.search.samples import Activity
    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit


_AFTER_A_POOR_ROUND = 2
"""Most tasks that analysts are asked about if they brought next to nothing new before."""


@dataclass(slots=True)
class Round:
    """One round of the search: the row of a step."""

    records: list[TaskRecord]
    """Records of the train tasks at the beginning of the round."""
    asked: int = 0
    """Number of tasks that analysts were asked about."""
    proposed: int = 0
    """Number of different edits of the analysts."""
    again: int = 0
    """Number of these edits that had lost a trial before."""
    open: set[str] = field(default_factory=set)
    """Keys of edits of the analysts that are to be tried."""
    new: int = 0
    """Number of these edits that were never tried before."""
    why: str = ""
    """Reason why an edit of the analysts was refused."""
    came: str = ""
    """Description of replies that could not be read."""
    tried: set[str] = field(default_factory=set)
    """Keys of edits whose trial was decided."""
    joined: list[Edit] = field(default_factory=list)
    left_out: list[Edit] = field(default_factory=list)

    def describe(self) -> str:
        said = []
        if self.proposed:
            count = "1 edit" if self.proposed == 1 else f"{self.proposed} edits"
            lost = f" ({self.again} of them lost a trial before)" if self.again else ""
            said.append(f"{count} proposed{lost}")
        elif self.asked and not self.came:
            said.append("nothing new was proposed")
        if self.why:
            said.append(f"refused: {self.why}")
        if self.came:
            said.append(f"replies could not be read: {self.came}")
        if self.tried:
            help = "helps" if len(self.joined) == 1 else "help"
            earlier = len(self.tried - self.open)
            of = f" ({earlier} of an earlier step)" if earlier else ""
            said.append(f"{len(self.tried)} tried{of}, {len(self.joined)} {help}")
        if self.joined:
            said.append("kept for the final comparison")
        if self.left_out:
            count = "1 edit" if len(self.left_out) == 1 else f"{len(self.left_out)} edits"
            said.append(f"{count} left out again")
        return ", ".join(said) or "no edit was tried"


class TrialSearch:
    """The loop of samples, analysts, trials and ablations."""

    def __init__(
        self, state: TrainingState, parameters: TrialParameters, final: FinalComparison
    ) -> None:
        self._state = state
        self._final = final
        self._settings = state.settings
        self._parameters = parameters
        self._tasks = TrainTasks(state, parameters)
        self._pool = Pool(parameters.tries)
        self._ablation = Ablation(state, parameters)
        self._harm = Harm(state, parameters)
        self._row = Round([])
        self._running: list[Trial] = []
        """Trials that go on beside the next ones."""
        self._epoch = 1
        self._idle = 0
        """Samplings of all tasks in a row without a change of the working skill between them."""
        self._together: set[tuple[str, str]] = set()
        """Tasks, each with the key of an edit that was tried with others for it."""
        self._repeats: int | None = None
        """Replies since a round brought no edit to try; None if the last round brought one."""
        self._repeated: set[str] = set()
        """Keys of the edits in these replies that had lost or joined before."""
        self._poor = False
        """Whether the last round brought fewer new edits than one for ``repeats`` replies."""
        self._why = ""  # reason why the optimizer is asked no more
        self._drawn = 0
        """Times that new groups were drawn since all tasks were sampled."""
        self._last_look = state.incumbent
        """The working skill when all tasks were sampled last."""
        self._dropped = False
        """Whether an edit was dropped since then: passing tasks may have needed it."""

    def run(self) -> str:
        """Search until there is nothing left to do; return the reason in words.

        Raises:
            StopRun: a fault ended the run, no train task can be measured, or a gate on the way
                could not be asked.
        """
        try:
            try:
                reason = self._search()
            except OutOfBudget as end:
                reason = end.reason
                if end.capped:
                    self._state.history.end_early(reason)
            self._leave_out_at_last()
        except StopRun as end:
            reason = end.reason
            if end.kind is Stop.CAP:
                self._state.history.end_early(reason)
            elif end.kind is Stop.UNREADABLE:
                self._row.came = reason
            else:
                raise
        finally:
            self._record_the_rest()
        self._state.pass_gate(self._epoch, self._tasks.records)
        return reason

    def _leave_out_at_last(self) -> None:
        """Leave edits out with the samples that are reserved for it."""
        self._state.purse.reserve(ABLATION, 0)
        with contextlib.suppress(OutOfBudget):
            self._leave_out()
            self._undo_harm(self._parameters.harm_early)

    def _record_the_rest(self) -> None:
        """Record the interrupted round, and the edits that were not tried."""
        self._state.history.leave(
            [*(edit for trial in self._running for edit in trial.edits), *self._pool.waiting]
        )
        if self._row.asked or self._row.tried or self._row.left_out:
            self._end_round()

    def _search(self) -> str:
        tasks = self._tasks
        tasks.look(self._state.incumbent)
        self._state.history.note(tasks.common_error())
        while True:
            self._row = Round(tasks.records)
            if tasks.all_pass:
                self._leave_out()
                if not (self._dropped and self._sample_all_again()):
                    return "every train task passes"
            if not self._act():
                return f"no edit is left that might help, and nothing new is proposed{self._why}"
            self._end_round()
            if not self._wide:
                tasks.look(self._state.incumbent)

    def _act(self) -> bool:
        """Do the most promising action; return False if there is none."""
        if self._asks_no_more and not self._state.edits:
            return self._try_waiting() or self._try_together()
        if not self._wide and self._many_untested and self._leave_out():
            return True
        actions = (
            self._ask,
            self._try_waiting,
            lambda: self._tasks.look(self._state.incumbent),
            self._tasks.widen,
            self._tasks.ask_again,
            self._leave_out,
            self._try_together,
            self._sample_all_again,
        )
        return any(action() for action in actions)

    @property
    def _many_untested(self) -> bool:
        return self._ablation.untested >= self._parameters.together

    # Analysts.

    def _ask(self) -> bool:
        """Ask analysts about reliably failing tasks, and add their edits to the pool."""
        if self._wide and self._tasks.unasked < self._tasks.few and self._try_waiting():
            return True
        batch = self._tasks.next_to_ask(self._state.incumbent, self._room_for_tasks())
        if not batch:
            return False
        row, context = self._row, self._context()
        row.asked = len(batch)
        context.memory.remember_patterns(record.pattern for record in batch)
        calls = context.calls
        unreadable, answered = calls.unreadable, calls.asked - calls.lost
        patches = self._state.stages.reflect(batch, context)
        if calls.unreadable > unreadable:
            row.came = calls.came
        merged = self._merge(patches, context)
        self._state.history.note(merged.note)
        self._take_in(merged.edits, context)
        replies = calls.asked - calls.lost - answered
        self._poor = row.new * self._parameters.repeats < replies
        self._repeats = 0 if self._repeats is None else self._repeats + replies
        if row.open:
            self._repeats, self._repeated = None, set()
        if self._asks_no_more:
            refused = f" (refused: {row.why})" if row.why else ""
            self._why = f": {self._repeats} more replies brought no edit to try{refused}"
            self._state.history.note(f"the optimizer is asked no more{self._why}")
        self._try_waiting()
        return True

    @property
    def _asks_no_more(self) -> bool:
        """Whether the optimizer repeats itself; one with many edits may have another one."""
        repeats = self._parameters.repeats * max(1, len(self._repeated))
        return self._repeats is not None and self._repeats >= repeats

    def _merge(self, patches: Sequence[Patch], context: Context) -> Patch:
        edits = [patch for patch in patches if patch.body is None]
        merged = self._state.stages.aggregate(edits, context.at(budget=UNBOUNDED))
        if merged.body is not None or len(edits) < len(patches):
            self._state.history.note(
                "a whole new body was left out: this search tries edits one by one; use "
                "--skillopt-search=batch for patches with a body"
            )
        return merged

    def _take_in(self, edits: Iterable[Edit], context: Context) -> None:
        """Add to the pool the edits that the update stage makes of those of the analysts.

        It is asked about all edits together that copy words of a task, since it sends these back
        to the optimizer, and about each other one by itself.
        """
        patches: list[tuple[Edit, ...]] = []
        copies: tuple[Edit, ...] = ()
        for proposed in edits:
            self._row.proposed += 1
            edit = findable(proposed, context.document)
            if self._pool.is_spent(edit):
                self._row.again += 1
                self._repeated.add(edit.key)
                self._state.history.turn_away(edit)
                self._pool.keep(edit)
                continue
            found = context.vetting.try_edit(context.document, edit)
            if isinstance(found, Refusal) and found.terms:
                copies += (edit,)
            else:
                patches.append((edit,))
        for patch in [*patches, copies] if copies else patches:
            handed = self._state.stages.update(Patch(patch), context)
            update = as_edits(handed, unite(patch), context)
            self._state.history.note(update.note)
            self._state.history.refuse(update.refused)
            self._row.why = next((refusal.why for refusal in update.refused), self._row.why)
            for made in update.applied:
                if made in patch or not self._pool.is_spent(made):
                    self._row.open.add(made.key)
                    self._row.new += not self._pool.has_lost(made)
                    self._pool.add(made)

    def _room_for_tasks(self) -> int:
        """Return how many tasks analysts may be asked about in this round."""
        p = self._parameters
        if self._asks_no_more:
            return 0
        most = p.search_calls(len(self._state.train), self._state.purse.samples)
        left = most - self._state.context.calls.asked
        calls = max(0, min(p.calls_per_round, left))
        tasks = calls // self._tasks.calls_per_task()
        return min(tasks, _AFTER_A_POOR_ROUND) if self._poor else tasks

    def _context(self) -> Context:
        return self._state.context.at(
            document=self._state.incumbent,
            step=self._state.history.step,
            epoch=self._epoch,
            budget=self._settings.edit_budget,
            minibatch=1,
            repeat=self._tasks.calls_per_task(),
            at_once=self._wide,
        )

    # Trials.

    def _try_waiting(self) -> bool:
        """Try the waiting edits, several at once, those with the most support first."""
        tried = False
        while (self._wide or not self._many_untested) and (trials := self._next_trials()):
            least = self._tasks.few if len(trials) > len(self._running) else 0
            self._running = trials
            if 2 * len(trials) < self._tasks.few:
                self._tasks.widen()
            try:
                # Edits that joined before are left out, and tasks sampled, at the same time.
                beside = [self._ablation.sample(), self._tasks.sampling(self._state.incumbent)]
                self._state.samples.carry_out(
                    self._sampling(trials, least), *(beside if self._wide else [])
                )
            finally:
                self._decide(trials)
            tried = True
            if self._wide:
                break
        return tried

    def _decide(self, trials: Sequence[Trial]) -> None:
        """Let winners join; edits that are undecided or not needed any more wait again."""
        if self._ablation.sampled:
            self._drop(self._ablation.judge())
        going_on = [trial for trial in trials if self._wide and trial.wants()]
        self._running = [trial for trial in going_on if self._is_needed(trial)]
        turned: set[str] = set()
        # Lost trials first: their samples are of the working skill before the winners joined.
        for trial in sorted(trials, key=lambda trial: trial.outcome == "won"):
            outcome = trial.outcome
            if trial in self._running:
                continue
            late = not self._is_needed(trial) or not turned.isdisjoint(trial.turned)
            if outcome == "open" or (outcome == "won" and late):
                for edit in trial.edits:
                    self._pool.add(edit)
                continue
            self._row.tried.update(edit.key for edit in trial.edits)
            if outcome == "won":
                self._join(trial, trial.edits)
                turned.update(trial.turned)
            else:
                self._lose(trial)

    def _next_trials(self) -> list[Trial]:
        """Return trials to carry out at once, in the order of the select stage.

        With few workers no two trials have a task in common, so that no sample is wasted.
        """
        failing = {record.task.id: record for record in self._tasks.failing()}
        waiting = [e for e in self._pool.waiting if not failing.keys().isdisjoint(e.tasks)]
        context = self._context().at(budget=UNBOUNDED)
        chosen = self._state.stages.select(Patch(tuple(waiting)), context)
        trials = list(self._running)
        busy: set[str] = set()
        for edit in chosen.edits:
            if len(trials) >= max(self._parameters.edits_at_once, self._state.width):
                break
            asking = [failing[task] for task in edit.tasks if task in failing]
            if asking and busy.isdisjoint(edit.tasks) and (trial := self._open([edit], asking)):
                trials.append(trial)
                busy |= set() if self._wide else set(edit.tasks)
        return trials

    def _is_needed(self, trial: Trial) -> bool:
        """Return whether a task of the trial still fails, since other edits may have joined."""
        return any(record.task.id in trial.before for record in self._tasks.failing())

    def _open(self, edits: Sequence[Edit], asking: Sequence[TaskRecord]) -> Trial | None:
        """Return a trial of those edits that fit the working skill; None if none does."""
        self._pool.take(edits)
        p, base = self._parameters, self._state.incumbent
        made = apply_each(base, edits, self._state.context)
        self._state.history.refuse(made.refused)
        if not made.applied:
            return None
        return Trial(made.applied, made.document, base, asking, p, p.upper + self._later)

    @property
    def _wide(self) -> bool:
        """Whether there are more workers than the trials of a few edits use."""
        return self._state.width > self._parameters.edits_at_once

    @property
    def _later(self) -> float:
        """Added to the bounds of trials and of ablation."""
        return self._parameters.later if self._epoch > 1 else 0.0

    def _sampling(self, trials: Sequence[Trial], least: int = 0) -> Activity:
        """Yield samples of trials until all are decided.

        A task that does better is sampled once without the edits too, for all of its trials:
        another edit may have joined that it needed, or its failures were bad luck. After the first
        round, fewer than ``least`` open trials wait for a later call.
        """
        rounds = 0
        while running := [(t, wants) for t in trials if (wants := t.wants(ahead=self._wide))]:
            if rounds and len(running) < least:
                return
            rounds += 1
            most = self._state.purse.affordable()
            while len(running) > 1 and sum(sum(w.values()) for _, w in running) > most:
                running.pop()
            without: dict[Document, dict[str, int]] = {}
            for trial, _ in running:
                tasks = trial.to_compare(every=self._wide)
                without.setdefault(trial.base, {}).update(dict.fromkeys(tasks, 1))
            arms = [(trial.document, wants) for trial, wants in running]
            found = yield "trial", [*without.items(), *arms]
            for base, rollouts in zip(without, found, strict=False):
                for trial in trials:
                    if trial.base == base:
                        trial.compare(rollouts)
                if base == self._state.incumbent:
                    self._tasks.update(rollouts)
            for (trial, _), rollouts in zip(running, found[len(without) :], strict=True):
                trial.tell(rollouts)

    def _lose(self, trial: Trial) -> None:
        self._pool.lose(trial.edits)
        self._tasks.add(trial.after.values())
        self._state.history.settle(trial.edits, "lost", trial.describe(), trial.effects)

    def _try_together(self) -> bool:
        """Try edits together that a failing task asked for and that each lost a trial.

        A task may need more than one of them, or one of them had bad luck.
        """
        for record in self._tasks.failing():
            task = record.task.id
            lost = self._pool.lost_for(task)
            if self._epoch > 1 or self._drawn:
                self._context().random(f"together {task} {self._drawn}").shuffle(lost)
            lost.sort(key=lambda edit: (task, edit.key) in self._together)
            edits = lost[: self._parameters.joint_edits]
            marks = [(task, edit.key) for edit in edits]
            if len(edits) < 2 or marks[0] in self._together:
                continue
            if len(edits) * self._parameters.pairs > self._state.purse.affordable():
                continue  # Their ablation could not be paid for.
            self._together.update(marks)
            trial = self._open(edits, [record])
            if trial is None:
                continue
            self._state.samples.carry_out(self._sampling([trial]))
            self._row.tried.update(edit.key for edit in trial.edits)
            if trial.outcome != "won":
                self._pool.lose(trial.edits, alone=False)
                return True
            needed = self._needed(trial)
            self._pool.lose([e for e in trial.edits if e not in needed], alone=False)
            self._join(trial, needed)
            if self._wide:
                # They share a task, so that at most one a round can be dropped.
                self._leave_out()
            # Other edits may have lost since these were missing.
            self._pool.reopen(failing.task.id for failing in self._tasks.failing())
            self._together.clear()
            return True
        if not self._together or self._drawn >= self._parameters.groups or self._state.edits:
            return False
        self._drawn += 1
        self._together.clear()
        return self._try_together()

    def _needed(self, trial: Trial) -> list[Edit]:
        """Return the edits of a won trial without which its task fails."""
        (task,) = trial.before
        edits, base = list(trial.edits), self._state.incumbent
        arms = {edit: rebuild(base, [one for one in edits if one != edit]) for edit in edits}
        without = {edit: document for edit, document in arms.items() if document is not None}
        failed = self._fails(list(without.values()), task)
        idle = [edit for edit, fails in zip(without, failed, strict=True) if not fails]
        groups = [idle, *([edit] for edit in idle)] if len(idle) > 1 else [idle]
        for group in groups:
            kept = [edit for edit in edits if edit not in group]
            short = rebuild(base, kept) if kept and set(group) <= set(edits) and group else None
            if short is not None and not any(self._fails([short, short], task)):
                edits = kept
        return edits

    def _fails(self, documents: Sequence[Document], task: str) -> list[bool]:
        """Return for each document whether a sample of the task fails."""
        found = self._state.samples.take_all([(d, {task: 1}) for d in documents], "trial")
        return [not any(r.passed for r in rollouts[task]) for rollouts in found]

    # The working skill.

    def _join(self, trial: Trial, edits: Sequence[Edit]) -> None:
        """Add edits to the working skill, which may have changed during their trial."""
        made = apply_each(self._state.incumbent, edits, self._state.context)
        if made.refused:
            self._state.history.refuse(made.refused[:1])
            return
        self._state.adopt(made.document, edits)
        self._state.history.won(edits, trial.effects)
        self._row.joined += edits
        self._ablation.add(edits, trial.turned[0], self._later)
        self._pool.reopen(trial.turned)
        self._tasks.settle(trial.after.values())

    def _leave_out(self) -> bool:
        """Leave each untested edit out, and drop those that are of no use."""
        tested = self._ablation.untested > 0
        while self._ablation.untested:
            beside = [self._tasks.sampling(self._state.incumbent)] if self._wide else []
            self._drop(self._ablation.leave_out(*beside))
        if tested:
            self._undo_harm(self._parameters.harm_early)
        return tested

    def _drop(
        self, edits: Sequence[Edit], why: str = "its task passed as often without it"
    ) -> bool:
        if not self._state.drop(edits, why):
            return False
        self._pool.forgive(edits)
        self._dropped = True
        self._row.left_out += edits
        self._tasks.forget(task for edit in edits for task in edit.tasks)
        return True

    # When nothing is left to try.

    def _sample_all_again(self) -> bool:
        """Sample all tasks again, since old records are partly luck; return False at the end.

        The search ends after ``patience`` such samplings without a change of the working skill
        between them. If there is an edit to compare, the final comparison comes first.

        Raises:
            OutOfBudget: the final comparison would have too few samples.
        """
        self._state.samples.require_measured(self._state.train)
        self._idle = 0 if self._state.incumbent != self._last_look else self._idle + 1
        if self._idle >= self._settings.patience or self._epoch >= self._settings.epochs:
            return False
        self._final.come_first(idle=self._idle > 0)
        self._epoch += 1
        self._tasks.discard()
        if self._epoch == 2:
            self._ablation.doubt()
            self._leave_out()
        self._last_look, self._dropped = self._state.incumbent, False
        self._together.clear()
        self._drawn = 0
        self._tasks.look(self._state.incumbent)
        self._undo_harm(self._parameters.harm_doubt)
        return True

    def _undo_harm(self, doubt: float) -> None:
        """Drop edits that break tasks which were not in their trials."""
        if not self._settings.pruning:
            return
        why = "tasks that had passed failed with it"
        while (edit := self._harm.find(doubt)) and self._drop([edit], why):
            self._ablation.forget(edit)
            self._pool.ban(edit)
            self._tasks.forget_failing()
            self._tasks.look(self._state.incumbent)

    def _end_round(self) -> None:
        row = self._row
        self._state.history.end_step(
            epoch=self._epoch,
            records=row.records,
            candidate=self._state.incumbent.version if row.joined or row.left_out else "",
            edits=len(row.joined),
            reason=row.describe(),
        )
        self._row = Round(self._tasks.records)
