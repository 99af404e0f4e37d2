"""Published search: each step takes a batch of train tasks, one merged patch and one gate."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt import TaskRecord
from pytest_skillopt.edits.combine import Patch
from pytest_skillopt.edits.reflect import ask_for_edits
from pytest_skillopt.edits.update import update
from pytest_skillopt.gate.data import MOST_OF_TASK, VETTING
from pytest_skillopt.plugins.published.blocks import ask_for_causes, with_reminders
from pytest_skillopt.plugins.published.epochs import compare_epochs, learn_from_epoch, slow_update
from pytest_skillopt.plugins.published.merging import aggregate_edits, by_levels, select_published
from pytest_skillopt.plugins.published.rewrites import merge_bodies, reflect_bodies, rewrite
from pytest_skillopt.search.extensions import Search, Stages
from pytest_skillopt.search.history import Basis
from pytest_skillopt.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_skillopt import SkillTask
    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.update import Update
    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.version import Version

_LARGEST_BATCH = 40
_MINIBATCH = 8
_LEAST_BUDGET = 2
"""Edit budget of the last step, if ``min_edit_budget`` is not set and the first is not smaller."""


class BatchSearch:
    """Search by batches and epochs: rollout, reflect, aggregate, select, update, gate."""

    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self._settings = state.settings
        self._size = batch_size(len(state.train), self._settings.batch_size)
        batches = math.ceil(len(state.train) / self._size)
        self._steps_per_epoch = math.ceil(batches / self._settings.accumulation)
        self._records: dict[str, TaskRecord] = {}
        """Latest rollouts of each train task under the incumbent."""
        self._steps_without_gain = 0
        """Steps in a row without an accepted edit."""
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
            if epoch > 1:
                self._end_epoch(epoch, before)
        return reason or "all epochs are over"

    def _run_epoch(self, epoch: int) -> str:
        for rounds in self._rounds(epoch):
            self._step(epoch, rounds)
            if self._everything_passes():
                return "every train task passes"
            if self._steps_without_gain >= self._settings.patience:
                break
        self._state.samples.require_measured(self._state.train)
        if self._steps_without_gain < self._settings.patience:
            return ""
        return f"{plural(self._steps_without_gain, 'step')} without an accepted edit"

    def _rounds(self, epoch: int) -> Iterator[list[list[SkillTask]]]:
        """Shuffle the train tasks into batches; yield ``accumulation`` batches for each step."""
        order = list(self._state.train)
        self._state.context.at(step=0).random(f"epoch {epoch}").shuffle(order)
        batches = [order[i : i + self._size] for i in range(0, len(order), self._size)]
        each = self._settings.accumulation
        yield from (batches[i : i + each] for i in range(0, len(batches), each))

    def _step(self, epoch: int, rounds: Sequence[Sequence[SkillTask]]) -> None:
        state = self._state
        context = self._context(epoch)
        records: list[TaskRecord] = []
        patches: list[Patch] = []
        for number, batch in enumerate(rounds):
            seen = self._roll_out(batch)
            records += seen
            # The budget falls only for the selection, as in SkillOpt and skillrl.
            asked = context.at(draw=number, budget=self._settings.edit_budget)
            patches += state.stages.reflect(seen, asked)
        self._judge(epoch, records, self._make(patches, context))
        self._done += 1

    def _context(self, epoch: int) -> Context:
        settings = self._settings
        budget = edit_budget(
            settings.schedule,
            self._done + 1,
            self._steps_per_epoch * settings.epochs,
            start=settings.edit_budget,
            end=settings.min_edit_budget or min(_LEAST_BUDGET, settings.edit_budget),
        )
        return self._state.context.at(
            version=self._state.incumbent,
            step=self._state.history.step,
            epoch=epoch,
            budget=budget,
            minibatch=settings.minibatch_size or _MINIBATCH,
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
        made = state.stages.update(state.stages.select(merged, context), context)
        state.history.note(made.note)
        state.history.refuse(made.refused)
        return made if made.version != context.version else None

    def _judge(self, epoch: int, records: Sequence[TaskRecord], made: Update | None) -> None:
        """Let the gate decide about the step's candidate."""
        state = self._state
        if made is None or state.judged(made.version):
            reason = "the candidate was tried before" if made else "nothing new was proposed"
            state.history.end_step(Basis(epoch, records), reason=reason)
            self._steps_without_gain += 1
            return
        verdict = state.take_step(made.version, made.applied, Basis(epoch, records))
        self._steps_without_gain += 1
        if verdict.gate != VETTING:
            state.history.decide(made.applied, verdict)
        if verdict.accepted:
            self._reset()

    def _reset(self) -> None:
        """Forget the records of the previous incumbent."""
        self._records.clear()
        self._steps_without_gain = 0

    def _end_epoch(self, epoch: int, before: Version) -> None:
        """Compare the epoch's document with the one before, for the slow update and meta skill.

        As in SkillOpt, the first epoch has none before it. After the last one nobody would read
        advice.
        """
        settings = self._settings
        context = self._context(epoch)
        advise = settings.meta_skill and epoch < settings.epochs
        if not (settings.slow_update or advise):
            return
        pairs = compare_epochs(self._state, before, context)
        if settings.slow_update and slow_update(self._state, before, pairs, context):
            self._reset()
        if advise:
            learn_from_epoch(before, pairs, context)

    def _everything_passes(self) -> bool:
        passing = {task for task, known in self._records.items() if known.n and not known.failed}
        return passing >= {task.id for task in self._state.train}


def batch_size(train: int, setting: int = 0) -> int:
    """Return the batch size: the setting, else a small suite's, half of a larger one's."""
    if setting:
        return min(setting, train)
    return train if train <= 12 else min(_LARGEST_BATCH, math.ceil(train / 2))


def most_of_search(tasks: Sequence[SkillTask], settings: Settings) -> tuple[int, int]:
    """Return the upper bounds of a search's rollouts and optimizer calls."""
    train = sum(task.split in ("train", "both") for task in tasks)
    val = sum(task.split in ("val", "both") for task in tasks)
    size = batch_size(train, settings.batch_size)
    steps = settings.epochs * -(-train // size)
    sampled = size * settings.rollouts * settings.accumulation
    decided = 2 * MOST_OF_TASK * val
    topped_up = settings.slow_update_pairs != "mixed"
    compared = 2 * (train if topped_up else min(settings.slow_update_samples, train))
    ends = (settings.epochs - 1) * (settings.slow_update or settings.meta_skill)
    rollouts = steps * (sampled + decided) + ends * (compared + decided)
    return rollouts, steps * 3 * sampled + 2 * ends


def edit_budget(schedule: str, step: int, steps: int, *, start: int, end: int) -> int:
    """Return the edit budget of a step, from 1, falling from ``start`` to ``end``, as in SkillOpt.

    With ``t = step / steps``, linear is ``round(start + (end - start) t)`` and cosine
    is ``round(end + (start - end) (1 + cos(pi t)) / 2)``; ``round`` takes a half to the even
    neighbour. A single step has ``start``. The budget is at least ``end`` and at least 1.
    """
    t = step / steps if steps > 1 else 0.0
    falling = {
        "constant": start,
        "linear": start + (end - start) * t,
        "cosine": end + (start - end) * (1 + math.cos(math.pi * t)) / 2,
    }
    return max(1, end, round(falling[schedule]))


def reflect_published(records: Sequence[TaskRecord], context: Context) -> list[Patch]:
    """Reflect, according to ``failure_only``, ``update_mode``, ``skill_aware`` and ``contrasts``.

    With ``skill_aware`` analysts tell a gap in the document from a lapse of the agent. With
    ``contrasts`` one more analyst sees the tasks with the widest spread of scores.
    """
    settings = context.settings
    failing = [record for record in records if record.failed]
    passing = [r for r in records if r.n and not r.failed and not settings.failure_only]
    if settings.update_mode == "full_rewrite_minibatch":
        return list(reflect_bodies([*failing, *passing], context))
    wide = sorted((r for r in records if r.contrasts), key=lambda r: -r.spread)
    wide = wide[: settings.contrasts]
    together = context.at(minibatch=max(1, len(wide)))
    ask = ask_for_causes if settings.skill_aware else ask_for_edits
    ask_of_passing = ask if settings.appendix_source == "both" else ask_for_edits
    return [
        *ask("reflect_failures", failing, context),
        *ask_of_passing("reflect_successes", passing, context),
        *ask("reflect_contrasts", wide, together),
    ]


def aggregate_published(patches: Sequence[Patch], context: Context) -> Patch:
    """Aggregate the bodies if there are any, else the edits."""
    bodies = [patch for patch in patches if patch.body is not None]
    if not bodies:
        return aggregate_edits(patches, context)
    return by_levels(bodies, context, "merge_rewrites", merge_bodies)


def update_published(patch: Patch, context: Context) -> Update:
    """Update by the setting ``update_mode``, and add reminders last."""
    edits = [p for p in patch.edits if p.origin != "appendix"]
    reminders = [p for p in patch.edits if p.origin == "appendix"]
    whole = edits and context.settings.update_mode == "rewrite_from_suggestions"
    if patch.body is not None or whole:
        result = rewrite(patch.body, edits, context)
    else:
        result = update(Patch(tuple(edits)), context)
    return with_reminders(result, reminders, context) if reminders else result


def search() -> Search:
    stages = (reflect_published, aggregate_published, select_published, update_published)
    return Search(
        make=BatchSearch,
        most=most_of_search,
        stages=lambda: Stages(*stages),
        prompts=Path(__file__).parent / "prompts",
    )
