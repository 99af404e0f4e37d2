"""Published search: each step takes a batch of train tasks, one merged patch and one gate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_skillopt import TaskRecord
from pytest_skillopt.addons.published.epochs import compare_epochs, learn_from_epoch, slow_update
from pytest_skillopt.addons.published.merging import select_published
from pytest_skillopt.addons.published.settings import PublishedSettings
from pytest_skillopt.addons.published.stages import (
    aggregate_published,
    reflect_published,
    update_published,
)
from pytest_skillopt.edits.combine import Patch
from pytest_skillopt.edits.update import rebuild
from pytest_skillopt.edits.update import update as apply_edits
from pytest_skillopt.gate.counts import counted
from pytest_skillopt.gate.data import VETTING
from pytest_skillopt.search.ablation import log_odds
from pytest_skillopt.search.extensions import Search, Stages, gate_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_skillopt import SkillTask
    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.update import Update
    from pytest_skillopt.gate.data import Verdict
    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit

_LARGEST_BATCH = 40
_MINIBATCH = 8
_EFFECT_SAMPLES = 2
"""Fresh samples of a rejected candidate on each task for which it has an edit."""
_LEAST_BUDGET = 2
"""Edit budget of the last step, if ``min_edit_budget`` is not set and the first is not smaller."""

_ABLATED = 3
"""Maximum number of tasks in the ablation of an edit."""
_NEEDED = 1.0
"""Log Bayes factor of "its tasks do better with it" above which an edit stays."""


class BatchSearch:
    """Search by batches and epochs: rollout, reflect, aggregate, select, update, gate."""

    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self._settings = state.settings
        self._own = state.settings.of(PublishedSettings)
        self._size = batch_size(len(state.train), self._settings.batch_size)
        batches = math.ceil(len(state.train) / self._size)
        self._steps_per_epoch = math.ceil(batches / self._own.accumulation)
        self._records: dict[str, TaskRecord] = {}
        """Latest rollouts of each train task under the incumbent."""
        self._fruitless = 0
        self._done = 0

    def run(self) -> str:
        """Search until there is nothing left to do; return the reason for the end.

        Raises:
            OutOfBudget: the rest of the budget is reserved for the final comparison.
            StopRun: a cap or a fault ended the run, or no train task can be measured.
        """
        reason = ""
        for epoch in range(1, self._settings.epochs + 1):
            before = self._state.incumbent
            if reason := self._run_epoch(epoch):
                break
            self._end_epoch(epoch, before)
        if self._settings.pruning:
            prune(self._state)
        return reason or "all epochs are over"

    def _run_epoch(self, epoch: int) -> str:
        for rounds in self._rounds(epoch):
            self._step(epoch, rounds)
            if self._everything_passes():
                return "every train task passes"
            if self._fruitless >= self._settings.patience:
                break
        self._state.samples.require_measured(self._state.train)
        if self._fruitless < self._settings.patience:
            return ""
        return f"{counted(self._fruitless, 'step')} without an accepted edit"

    def _rounds(self, epoch: int) -> Iterator[list[list[SkillTask]]]:
        """Shuffle the train tasks into batches; yield ``accumulation`` batches for each step."""
        order = list(self._state.train)
        self._state.context.at(step=0).random(f"epoch {epoch}").shuffle(order)
        batches = [order[i : i + self._size] for i in range(0, len(order), self._size)]
        each = self._own.accumulation
        yield from (batches[i : i + each] for i in range(0, len(batches), each))

    def _step(self, epoch: int, rounds: Sequence[Sequence[SkillTask]]) -> None:
        state = self._state
        context = self._context(epoch)
        records: list[TaskRecord] = []
        patches: list[list[Patch]] = [[] for _ in range(self._own.candidates)]
        for number, batch in enumerate(rounds):
            seen = self._roll_out(batch)
            records += seen
            for candidate, found in enumerate(patches):
                turn = context.at(draw=candidate * len(rounds) + number)
                found += state.stages.reflect(seen, turn)
        updates = [
            self._make(found, context.at(draw=number)) for number, found in enumerate(patches)
        ]
        self._judge(epoch, records, [update for update in updates if update is not None])
        self._done += 1

    def _context(self, epoch: int) -> Context:
        settings, own = self._settings, self._own
        budget = edit_budget(
            own.schedule,
            self._done + 1,
            self._steps_per_epoch * settings.epochs,
            start=settings.edit_budget,
            end=own.min_edit_budget or min(_LEAST_BUDGET, settings.edit_budget),
        )
        return self._state.context.at(
            document=self._state.incumbent,
            step=self._state.history.step,
            epoch=epoch,
            budget=budget,
            minibatch=own.minibatch_size or _MINIBATCH,
        )

    def _roll_out(self, batch: Sequence[SkillTask]) -> list[TaskRecord]:
        state = self._state
        wanted = {task.id: task.rollouts or self._settings.rollouts for task in batch}
        found = state.samples.take(state.incumbent, wanted, "train")
        records = [TaskRecord.of(task, found[task.id]) for task in batch]
        self._records |= {record.task.id: record for record in records}
        state.context.memory.remember_patterns(record.pattern for record in records)
        return records

    def _make(self, patches: Sequence[Patch], context: Context) -> Update | None:
        """Aggregate, select and update; None if nothing is left to try."""
        state = self._state
        if not patches:
            return None
        merged = state.stages.aggregate(patches, context)
        state.history.note(merged.note)
        update = state.stages.update(state.stages.select(merged, context), context)
        state.history.note(update.note)
        state.history.refuse(update.refused)
        return update if update.document != context.document else None

    def _judge(self, epoch: int, records: Sequence[TaskRecord], updates: Sequence[Update]) -> None:
        """Let the gate decide once for the step, on the only or the best candidate."""
        state = self._state
        by_version: dict[str, Update] = {}
        for update in updates:
            if not state.judged(update.document):
                by_version.setdefault(update.document.version, update)
        fresh = list(by_version.values())
        if not fresh:
            reason = "every candidate was tried before" if updates else "nothing new was proposed"
            state.history.end_step(epoch=epoch, records=records, reason=reason)
            self._fruitless += 1
            return
        candidates = [(update.document, update.applied) for update in fresh]
        best, verdict = state.race(candidates, epoch, records)
        chosen = fresh[best]
        if verdict.accepted:
            self._accept(chosen, verdict)
            return
        self._fruitless += 1
        if verdict.gate == VETTING:
            return
        effects = self._effects_of(chosen)
        state.history.decide(chosen.applied, verdict, effects)
        if verdict.decision == "rejected" and (part := self._better_part(chosen, effects)):
            about = "the better part of the last patch"
            _, verdict = state.race([(part.document, part.applied)], epoch, records, about)
            if verdict.accepted:
                self._accept(part, verdict)

    def _accept(self, update: Update, verdict: Verdict) -> None:
        self._state.history.decide(update.applied, verdict)
        self._reset()

    def _reset(self) -> None:
        """Forget the records of the previous incumbent."""
        self._records.clear()
        self._fruitless = 0

    def _effects_of(self, update: Update) -> dict[str, float]:
        """Measure the change in pass rate, in [-1, 1], of each train task that has an edit.

        Empty without ``splitting``, or if the budget does not suffice.
        """
        known = self._records
        asked = [task for edit in update.applied for task in edit.tasks if task in known]
        wanted = dict.fromkeys(asked, _EFFECT_SAMPLES)
        if not self._own.splitting or not self._state.budget.covers(sum(wanted.values())):
            return {}
        found = self._state.samples.take(update.document, wanted, "trial")
        after = [TaskRecord.of(known[task].task, rollouts) for task, rollouts in found.items()]
        return {r.task.id: r.rate - known[r.task.id].rate for r in after if r.n}

    def _better_part(self, update: Update, effects: Mapping[str, float]) -> Update | None:
        """Apply only the edits whose tasks improved on the whole.

        None if these are all or none of the edits, or the candidate was tried before.
        """
        better = [e for e in update.applied if sum(effects.get(task, 0.0) for task in e.tasks) > 0]
        if not better or len(better) == len(update.applied):
            return None
        state = self._state
        here = state.context.at(document=state.incumbent, step=state.history.step)
        part = apply_edits(Patch(tuple(better)), here)
        return part if part.applied and not state.judged(part.document) else None

    def _end_epoch(self, epoch: int, before: Document) -> None:
        """Compare the epoch's document with the one before, for the slow update and meta skill.

        After the last epoch nobody would read advice.
        """
        own, context = self._own, self._context(epoch)
        advise = own.meta_skill and epoch < self._settings.epochs
        if not (own.slow_update or advise):
            return
        pairs = compare_epochs(self._state, before, context)
        if own.slow_update and slow_update(self._state, before, pairs, context):
            self._reset()
        if advise:
            learn_from_epoch(before, pairs, context)

    def _everything_passes(self) -> bool:
        passing = {task for task, known in self._records.items() if known.n and not known.failed}
        return passing >= {task.id for task in self._state.train}


def prune(state: TrainingState) -> None:
    """Remove the accepted edits that seem to have no effect, unless the gate finds a loss.

    The gate decides whether the full skill is better than the short one. If not, the short one
    stays.
    """
    idle = idle_edits(state, 2 * state.settings.rollouts)
    short = rebuild(state.base, [edit for edit in state.edits if edit not in idle])
    if short is None or short == state.incumbent:
        return
    gate = state.open_gate(gate_options(state.settings))
    verdict = state.samples.decide(gate, short, state.incumbent)
    state.verdicts.append(verdict)
    state.history.record("pruning", short.version, verdict)
    if verdict.decision == "rejected":
        state.drop(idle, "its ablation made no difference that the gate could detect")


def idle_edits(state: TrainingState, samples: int) -> list[Edit]:
    """Find edits without which, one by one, their tasks pass as often on fresh samples.

    An edit without tasks, or on which another edit builds, is not tested. If several edits
    share a task, only the last can be idle: two equivalent edits replace each other, so neither
    seems needed, but without both their tasks would fail.

    ``samples`` is the number for each version and task; nothing is sampled if the budget does not
    suffice for all.
    """
    known = {task.id for task in state.train}
    ablated: list[tuple[Edit, list[str]]] = []
    arms: list[tuple[Document, dict[str, int]]] = []
    for edit in state.edits:
        without = state.without(edit)
        tasks = [task for task in edit.tasks if task in known][:_ABLATED]
        if without is not None and without != state.incumbent and tasks:
            ablated.append((edit, tasks))
            arms.append((without, dict.fromkeys(tasks, samples)))
    arms.append((state.incumbent, {task: samples for _, tasks in ablated for task in tasks}))
    if not state.budget.covers(sum(sum(wanted.values()) for _, wanted in arms)):
        return []
    *others, whole = state.samples.take_all(arms, "trial")
    idle: list[Edit] = []
    taken: set[str] = set()
    for (edit, tasks), other in reversed(list(zip(ablated, others, strict=True))):
        needed = sum(log_odds(whole[task], other[task]) for task in tasks) > _NEEDED
        if not needed and taken.isdisjoint(tasks):
            idle.insert(0, edit)
            taken.update(tasks)
    return idle


def batch_size(train: int, setting: int = 0) -> int:
    """Return the batch size: the setting, else a small suite's, half of a larger one's."""
    if setting:
        return min(setting, train)
    return train if train <= 12 else min(_LARGEST_BATCH, math.ceil(train / 2))


def most_of_search(tasks: Sequence[SkillTask], settings: Settings) -> tuple[int, int]:
    """Return the upper bounds of a search's rollouts and optimizer calls."""
    train = sum(task.split in ("train", "both") for task in tasks)
    val = sum(task.split in ("val", "both") for task in tasks)
    own = settings.of(PublishedSettings)
    size = batch_size(train, settings.batch_size)
    steps = settings.epochs * -(-train // size)
    sampled = size * settings.rollouts * own.accumulation
    decided = 2 * settings.gate_kmax * val
    topped_up = own.slow_update_pairs != "mixed"
    compared = 2 * (train if topped_up else min(own.slow_update_samples, train))
    ends = settings.epochs * (own.slow_update or own.meta_skill)
    rollouts = steps * (sampled + decided) + ends * (compared + decided)
    return rollouts, steps * 3 * sampled * own.candidates + 2 * ends


def edit_budget(schedule: str, step: int, steps: int, *, start: int = 4, end: int = 2) -> int:
    """Return the edit budget of a step, from 1, falling from ``start`` to ``end``, as in SkillOpt.

    With ``t = min(step, steps) / steps``, linear is ``round(start + (end - start) t)`` and cosine
    is ``round(end + (start - end) (1 + cos(pi t)) / 2)``; ``round`` takes a half to the even
    neighbour. A single step has ``start``. The budget is at least ``end`` and at least 1.
    """
    t = min(max(step, 0), steps) / steps if steps > 1 else 0.0
    falling = {
        "constant": start,
        "linear": start + (end - start) * t,
        "cosine": end + (start - end) * (1 + math.cos(math.pi * t)) / 2,
    }
    return max(1, end, round(falling[schedule]))


def _stages() -> Stages:
    return Stages(reflect_published, aggregate_published, select_published, update_published)


def search() -> Search:
    return Search(make=BatchSearch, most=most_of_search, stages=_stages)
