"""Train one skill: search, compare the result with the start, and say what may be written.

The search runs the stages (rollout, reflect, aggregate, select, update, gate) and keeps what the
gate accepts. Its result is compared with the start once more, on fresh samples of the whole suite.
Nothing is written here.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pytest_skillopt.edits.calls import Calls, Prompts
from pytest_skillopt.edits.context import Context, contracts_of, read_preferences
from pytest_skillopt.edits.records import Memory
from pytest_skillopt.edits.vetting import Vetting
from pytest_skillopt.model.purse import Amounts, Purse
from pytest_skillopt.rollouts.executor import FunctionExecutor
from pytest_skillopt.rollouts.sampler import Sampler, Stop, StopRun
from pytest_skillopt.run.result import NeedRow
from pytest_skillopt.search.budget import calls_at_once, samples_of, width_of
from pytest_skillopt.search.estimate import Belief, estimate_gain, pairs_needed, tasks_needed
from pytest_skillopt.search.extensions import Stages, notes_on_search
from pytest_skillopt.search.final_comparison import (
    FinalComparison,
    cap_to_continue,
    known_shortage,
    option_for,
)
from pytest_skillopt.search.history import Observer
from pytest_skillopt.search.outcome import (
    TrainOutcome,
    arm_of,
    comparison,
    cost_of,
    task_row,
    task_rows,
    with_expected,
    with_start,
)
from pytest_skillopt.search.samples import Samples
from pytest_skillopt.search.state import TrainingState
from pytest_skillopt.settings import Settings
from pytest_skillopt.tasks.splits import test_of, train_of, val_of, without_test

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_skillopt.model.types import Model
    from pytest_skillopt.rollouts.executor import Executor
    from pytest_skillopt.rollouts.rollout import Rollout, RolloutRequest
    from pytest_skillopt.run.result import GainRow, Status, TaskRow
    from pytest_skillopt.search.extensions import RunsSearch
    from pytest_skillopt.search.final_comparison import Measured
    from pytest_skillopt.skill.text import Text
    from pytest_skillopt.skill.version import Version
    from pytest_skillopt.tasks.task import SkillTask

_ENDED: dict[Stop | None, Status] = {
    **dict.fromkeys((None, Stop.CAP, Stop.SPENT, Stop.UNREADABLE), "unchanged"),
    Stop.INTERRUPTED: "interrupted",
}
"""Status of a run that changes nothing, by the kind of its end; a fault leaves it unmeasured."""
_PRICED = 4
"""Samples that tell what a rollout takes, for a search that takes many at once."""


@dataclass(eq=False, repr=False)
class Trainer:
    """Train one skill on one suite, with any executor and any model.

    Raises:
        ValueError: no train or no val task, or a template or preference that cannot be read.
    """

    version: Version
    """The skill as it is on disk."""
    tasks: Sequence[SkillTask]
    """The suite with its splits assigned; all of one skill."""
    sampler: Sampler | Executor
    """An executor, or a ``rollouts.sampler.Sampler`` over one. An executor gets a sampler with the
    limits of the settings that keeps its rollouts in memory."""
    model: Model
    """The optimizer."""
    settings: Settings
    """With the caps; a cap on rollouts that only the sampler knows holds, too."""
    _: KW_ONLY
    skill: str = "SKILL.md"
    """Path of the skill as in the tasks."""
    root: Path | None = None
    """Directory of relative paths in the settings."""
    stages: Stages | None = None
    """Replacements of single stages."""
    observer: Observer | None = None
    """Is told each step and decision."""
    at_once: int = 0
    """Rollouts that run at once, for the size of a round; 0: those of the executor. A run that is
    continued needs the number of its beginning."""
    rivals: Mapping[str, Version] = field(default_factory=dict)
    """The other skills that some of the tasks are about, by path."""
    renewed: Mapping[str, Text] = field(default_factory=dict)
    """New SKILL.md of other skills, by path, which agents see in place of those on disk."""
    purse: Purse | None = None
    """Bounds the training; by default one with the caps of the settings."""

    def __post_init__(self) -> None:
        sampler = self.sampler
        settings = self.settings
        if not isinstance(sampler, Sampler):
            sampler = Sampler(sampler, self.tasks, settings=settings)
        if sampler.rollouts_left and not settings.max_rollouts:
            settings = replace(settings, max_rollouts=sampler.rollouts_left)
        _check(self.tasks)
        stages = self.stages or Stages.of(settings)
        observer = self.observer or Observer()
        purse = self.purse or Purse(Amounts.caps_of(settings), at_once=lambda: sampler.at_once)
        at_once = self.at_once or sampler.at_once
        calls = Calls(
            self.model,
            Prompts(stages.prompt),
            workers=settings.optimizer_workers or calls_at_once(at_once),
            breaker=settings.breaker,
            on_usage=purse.count_calls,
            interrupted=lambda: sampler.ended,
        )
        train = train_of(self.tasks)
        context = Context(
            version=self.version,
            settings=settings,
            calls=calls,
            memory=Memory(),
            vetting=Vetting(self.tasks, self.version, settings, self.skill, self.root),
            preferences=read_preferences(settings.preferences, self.root),
            contracts=contracts_of(train),
        )
        of_rivals = [task for task in self.tasks if task.skill in self.rivals]
        samples = Samples(
            sampler,
            purse,
            skill=self.skill,
            start=self.version,
            rivals={task.id: (task.skill, self.rivals[task.skill]) for task in of_rivals},
            renewed=self.renewed,
        )
        self._state = TrainingState(
            context,
            self.tasks,
            samples,
            stages=stages,
            observer=observer,
            width=width_of(at_once),
        )
        self._final = FinalComparison(self._state, observer.begun)
        self._believed: Mapping[str, Belief] = {}
        """Pass rates that the search expects of its tasks after the final comparison."""
        self._state.history.notes.extend(notes_on_search(settings))

    def run(self) -> TrainOutcome:
        """Train; end cleanly at caps and faults. Only a bug or Ctrl-C raises."""
        state = self._state
        short = known_shortage(state.purse, state.settings, [*state.suite, *state.test])
        if short:
            return self._outcome("unchanged", short, is_short=True)
        stopped = None
        try:
            reason = self._search().run()
        except StopRun as end:
            stopped = end.kind
            reason = end.reason
            if stopped not in (Stop.SPENT, Stop.UNREADABLE):
                state.history.end_early(reason)
        if state.incumbent == state.start:
            return self._end_unchanged(stopped, reason)
        return self._compare(stopped, reason)

    def _search(self) -> RunsSearch:
        """Make the search that the settings choose."""
        state = self._state
        if state.search.make:
            if state.purse.is_guessed:  # else its first batch may be refused by an assumption
                state.samples.take(state.start, {t.id: 1 for t in state.train[:_PRICED]}, "price")
            return state.search.make(state)
        # Imported only here: it needs numpy, which a session that trains nothing does not.
        from pytest_skillopt.search.loop import DefaultSearch

        state.purse.allow(samples_of(len(state.suite)))
        return DefaultSearch(state, self._final)

    def _end_unchanged(self, stopped: Stop | None, reason: str) -> TrainOutcome:
        verdicts = self._state.verdicts
        calls = self._state.context.calls
        ended = _ENDED.get(stopped, "unmeasured")
        if ended == "unchanged" and verdicts and verdicts[-1].decision == "unmeasured":
            why = f"a candidate could not be measured: {verdicts[-1].reason}"
            return self._outcome("unmeasured", why)
        if stopped is Stop.UNMEASURED:
            return self._outcome("unmeasured", reason)
        if self._state.history.fault:
            return self._outcome(ended, self._state.history.fault)
        if calls.unreadable and calls.unreadable + calls.lost == calls.asked:
            reason = (
                f"none of the {calls.unreadable} replies of the optimizer could be read "
                f"({calls.came}); try another skillopt_optimizer"
            )
        return self._outcome(ended, f"no better skill was found: {reason}")

    def _compare(self, stopped: Stop | None, reason: str) -> TrainOutcome:
        """Make the final comparison, without which nothing may be written."""
        if _ENDED.get(stopped) == "unchanged":
            try:
                measured = self._final.run()
            except StopRun as end:
                self._state.history.end_early()
                stopped = end.kind
                reason = end.reason
            else:
                measured = self._final.open_test(measured)
                if outlook := self._state.outlook:
                    self._believed = outlook.learn(measured.before, measured.after)
                self._state.settle_adopted(measured.verdict)
                verdict = measured.verdict
                return self._outcome(verdict.decision, verdict.reason, measured, reason)
        self._state.settle_adopted(None)
        why = f"a candidate was found, but the final comparison was not made: {reason}"
        return self._outcome(_ENDED.get(stopped, "unmeasured"), why)

    def _outcome(
        self,
        status: Status,
        reason: str,
        measured: Measured | None = None,
        ended: str = "",
        *,
        is_short: bool = False,
    ) -> TrainOutcome:
        state = self._state
        rows: list[TaskRow] = []
        verdict = measured.verdict if measured else None
        decided = verdict is not None and verdict.decision != "unmeasured"
        gain = need = None
        if measured:
            tasks = [t for t in (*state.suite, *state.test) if t.id in measured.before]
            rows = task_rows(tasks, measured.before, measured.after, measured.verdict)
            gain, need = self._estimate(measured)
        rows = list(self._of_all_tasks(rows))
        if status == "accepted":
            rows = [self._with_expected(row) for row in rows]
        ended_early = state.history.ended_early or status in ("interrupted", "unmeasured")
        resumable = self._final.interrupted or (ended_early and not decided)
        cap = ""
        if is_short or (state.history.ended_early and status in ("unchanged", "rejected")):
            planned = 0 if measured else self._final.planned
            suite = [*state.suite, *state.test]
            cap = cap_to_continue(state.purse, state.settings, suite, planned=planned)
        after = state.incumbent if status == "accepted" else state.start
        accepted = tuple(state.accepted)
        notes = tuple(self._notes(status))
        return TrainOutcome(
            skill=state.skill,
            before=state.start,
            after=after,
            status=status,
            reason=reason,
            proposal=state.incumbent,
            accepted=accepted,
            verdict=verdict,
            resumable=resumable,
            cap=cap,
            gain=gain,
            ended=ended,
            need=need,
            tasks=rows,
            notes=notes,
            **_measurements(rows, measured),
            **self._of_search(),
        )

    def _of_search(self) -> dict[str, Any]:
        """Return the fields of the outcome that the search gives."""
        state = self._state
        prospect = state.outlook.prospect() if state.outlook else None
        shared = any(task.split == "both" for task in state.val)
        return {
            "steps": state.history.steps,
            "edits": state.history.edits,
            "prospect": prospect,
            "warnings": state.context.vetting.warnings(state.start, state.incumbent),
            "shared_train_val": shared,
            "samples": state.purse.samples,
            "optimizer_calls": state.context.calls.asked,
        }

    def _of_all_tasks(self, compared: Sequence[TaskRow]) -> Iterator[TaskRow]:
        """Yield a row for each task, with all samples of the skill on disk.

        Args:
            compared: rows of the final comparison and of the test split.
        """
        state = self._state
        at_start = self._state.samples.at_start()
        known = {row.id: row for row in compared}
        hoped = state.outlook.hoped() if state.outlook else {}
        for task in (*state.suite, *state.test):
            start = at_start.get(task.id, ())
            row = known.get(task.id)
            if row is None and not start:
                continue
            if row is None:
                row = task_row(task, start, [])
            of = "" if task.skill == state.skill else task.skill
            more = {"of": of, "hoped": hoped.get(task.id)}
            yield with_start(row, arm_of(start)).model_copy(update=more)

    def _with_expected(self, row: TaskRow) -> TaskRow:
        """Add what the search expects of a task, if it has seen it."""
        if (belief := self._believed.get(row.id)) is None:
            return row
        return with_expected(row, belief.after - belief.before)

    def _estimate(self, measured: Measured) -> tuple[GainRow | None, NeedRow | None]:
        """Estimate the gain of the candidate, and what would decide if that is open."""
        state = self._state
        gain = estimate_gain(state.suite, self._believed, measured.before, measured.after)
        refused = measured.verdict.decision == "rejected" and not measured.verdict.names("broken")
        if not gain or not refused:
            return gain, None
        level = min(0.5, state.settings.gate_alpha * state.prior)
        tasks = tasks_needed(gain, level)
        if tasks > gain.tasks:
            return gain, NeedRow(tasks=tasks)
        pairs = pairs_needed(gain, level)
        if not pairs:
            return gain, None
        if pairs <= gain.pairs:
            return gain, NeedRow(pairs=pairs, option=f"skillopt_seed={state.settings.seed + 1}")
        option = option_for(
            state.purse,
            state.settings,
            [*state.suite, *state.test],
            pairs=pairs,
            search=state.purse.samples - measured.samples,
            log_e=math.log(state.prior),
        )
        return gain, NeedRow(pairs=pairs, option=option)

    def _notes(self, status: Status) -> list[str]:
        calls = self._state.context.calls
        notes = list(self._state.history.notes)
        why = self._state.history.why_early
        if why and status == "accepted":  # The reason of any other one says it.
            notes.append(f"the search ended early: {why}")
        for count, what in (
            (calls.unreadable, "replies of the optimizer could not be read, even after a repair"),
            (calls.lost, "optimizer calls were not answered by the provider"),
        ):
            if count:
                notes.append(f"{count} of {calls.asked} {what}; they were left out")
        return list(dict.fromkeys(notes))


def _measurements(rows: Sequence[TaskRow], measured: Measured | None) -> dict[str, Any]:
    """Return the fields of the outcome that compare both versions."""
    suite = without_test(rows)
    val = val_of(rows)
    test = test_of(rows)
    found: dict[str, Any] = {
        "suite": comparison(suite),
        "val": comparison(val),
        "test": comparison(test),
    }
    if measured:
        found["from_search"] = measured.from_search
        found["cost"] = cost_of(measured.before, measured.after)
    return found


def train(
    version: Version,
    tasks: Sequence[SkillTask],
    run: Callable[[RolloutRequest, str], Rollout],
    model: Model,
    **settings: Any,
) -> TrainOutcome:
    """Train a skill without a session of pytest; nothing is written.

    Args:
        version: the skill of the start.
        tasks: the tasks with their splits, at least one for train and one for val.
        run: carries out one rollout of ``request.task`` under a skill of this text.
        model: the optimizer.
        settings: by their names, such as ``max_rollouts=700``.

    Raises:
        TypeError: there is no such setting.
        ValueError: no train or no val task, or an unknown search or gate.
    """
    return Trainer(version, tasks, FunctionExecutor(run), model, Settings(**settings)).run()


def _check(tasks: Sequence[SkillTask]) -> None:
    for name, there in (("train", train_of(tasks)), ("val", val_of(tasks))):
        if not there:
            raise ValueError(
                f"no {name} task: a training needs at least one train and one val task; give every "
                "task a split, or let suite.splits.assign_splits do it"
            )
