"""Train one skill: search, then compare afresh, then say what may be written.

Rollout, reflect, aggregate, select, update, gate: the search runs these stages and keeps what the
gate accepts. What it ends with is compared with the start once more, on fresh samples of the whole
suite. Nothing is written here.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_skillopt.optimizer.allowance import Allowance, Caps, OutOfMeans
from pytest_skillopt.optimizer.calls import Calls
from pytest_skillopt.optimizer.context import Context
from pytest_skillopt.optimizer.final import plan_final
from pytest_skillopt.optimizer.gate_options import GateTask
from pytest_skillopt.optimizer.gates import make_gate
from pytest_skillopt.optimizer.guidance import contracts_of, read_preferences
from pytest_skillopt.optimizer.ledger import NullObserver
from pytest_skillopt.optimizer.memory import Memory
from pytest_skillopt.optimizer.parameters import TrialParameters
from pytest_skillopt.optimizer.rates import suite_rate
from pytest_skillopt.optimizer.search_batch import BatchSearch
from pytest_skillopt.optimizer.search_trials import TrialSearch
from pytest_skillopt.optimizer.stages import Stages
from pytest_skillopt.optimizer.taskrows import task_row
from pytest_skillopt.optimizer.templates import Prompts
from pytest_skillopt.optimizer.vetting import Vetting
from pytest_skillopt.optimizer.workbench import Workbench
from pytest_skillopt.run.result import Comparison, EditRow, StepRow, TaskRow
from pytest_skillopt.suite.sampler import StopRun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_skillopt.model.types import Model
    from pytest_skillopt.optimizer.gate import Gate
    from pytest_skillopt.optimizer.ledger import Observer
    from pytest_skillopt.optimizer.proposals import Proposal
    from pytest_skillopt.optimizer.samples import Sampling
    from pytest_skillopt.optimizer.verdict import Verdict
    from pytest_skillopt.run.result import Rate, Status
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.suite.rollouts import Rollout
    from pytest_skillopt.suite.tasks import SkillTask


_ENDED: dict[str, Status] = {"": "unchanged", "cap": "unchanged", "interrupted": "interrupted"}
"""Status of a run that changes nothing, by the kind of its end; a fault leaves it unmeasured."""


@dataclass(frozen=True, slots=True)
class TrainOutcome:
    """What a training found. ``after`` is the document to write; ``before`` where nothing is."""

    skill: str
    before: Document
    after: Document
    status: Status
    reason: str
    proposal: Document
    """The best that the search found, whether or not it may be written."""
    accepted: tuple[Proposal, ...] = ()
    """The edits of ``proposal``, in order, with their reasons and tasks."""
    verdict: Verdict | None = None
    """The last comparison."""
    suite: Comparison | None = None
    from_search: int = 0
    """Tasks of ``suite`` whose rate before is that of samples which the search took."""
    val: Comparison | None = None
    test: Comparison | None = None
    steps: tuple[StepRow, ...] = ()
    edits: tuple[EditRow, ...] = ()
    tasks: tuple[TaskRow, ...] = ()
    shared_train_val: bool = False
    notes: tuple[str, ...] = ()
    samples: int = 0
    optimizer_calls: int = 0
    spent: Caps = field(default=Caps(), compare=False)
    """What it took, replies of the cache included, as it counts towards the caps."""


class Trainer:
    """Trains one skill on one suite, with any sampler and any model."""

    def __init__(
        self,
        document: Document,
        tasks: Sequence[SkillTask],
        sampler: Sampling,
        model: Model,
        settings: Settings,
        *,
        skill: str = "SKILL.md",
        memory: Path | None = None,
        run: str = "",
        root: Path | None = None,
        stages: Stages | None = None,
        prompt: Callable[[str], str | None] | None = None,
        observer: Observer | None = None,
        deterministic: bool = False,
        parameters: TrialParameters | None = None,
    ) -> None:
        """Args:
        document: the skill as it is on disk.
        tasks: the suite with its splits assigned; all of one skill.
        sampler: ``suite.sampler.Sampler`` over any executor.
        model: the optimizer.
        skill: path of the skill as in the tasks.
        memory: file of what was tried, kept over runs; None keeps nothing.
        run: name of this run; a resumption has the same, every other run another.
        root: what relative paths of the settings are relative to.
        stages: replacements of single stages.
        prompt: returns a template in the place of a built-in one, or None.
        deterministic: a task has one fixed outcome under one skill.
        parameters: of the search ``trials``; its defaults fit suites of 10 to 200 tests.

        Raises:
            ValueError: no train or no val task, or a template or preference that cannot be read.
        """
        self._settings = settings
        self._skill = skill
        self._sampler = sampler
        self._parameters = parameters or TrialParameters()
        self._deterministic = deterministic
        _check(tasks)
        allowance = Allowance(Caps.of(settings), search_samples=self._search_samples(tasks))
        self._calls = Calls(
            model,
            Prompts(settings.prompts, prompt, root=root),
            workers=settings.optimizer_workers,
            breaker=settings.breaker,
            on_usage=allowance.called,
        )
        contracts = contracts_of([task for task in tasks if task.split in ("train", "both")])
        context = Context(
            document=document,
            settings=settings,
            calls=self._calls,
            memory=Memory(
                memory,
                run=_run_name(document, settings, tasks),
                name=run,
                enabled=settings.memory,
                feedback=settings.feedback,
            ),
            vetting=Vetting(
                tasks,
                allow=settings.lint_allow,
                max_tokens=settings.max_skill_tokens,
                contracts=contracts,
                skill=document.text,
            ),
            preferences=read_preferences(settings.preferences, root),
            contracts=contracts,
        )
        self._bench = Workbench(
            context,
            tasks,
            skill=skill,
            sampler=sampler,
            stages=stages or Stages(),
            allowance=allowance,
            observer=observer or NullObserver(),
            deterministic=deterministic,
        )
        self._final = plan_final(settings, len(self._measured_tasks()))
        allowance.reserve = self._final.samples + self._test_samples()
        if self._in_batches and settings.search != "batch":
            self._bench.ledger.notes.append(
                f"update_mode={settings.update_mode} rewrites the whole body, which cannot be "
                "tried edit by edit: the search is batch"
            )

    def run(self) -> TrainOutcome:
        """Train. Ends cleanly at caps and faults; only a bug or Ctrl-C raises."""
        bench = self._bench
        short = self._shortage()
        if short:
            return self._outcome("unchanged", short)
        stopped, reason = self._search()
        if bench.incumbent == bench.start:
            outcome = self._end_unchanged(stopped, reason)
        else:
            outcome = self._compare(stopped, reason)
        bench.context.memory.save(fruitless=outcome.status in ("unchanged", "rejected"))
        return outcome

    def _end_unchanged(self, stopped: str, reason: str) -> TrainOutcome:
        verdicts = self._bench.verdicts
        if not stopped and verdicts and verdicts[-1].decision == "unmeasured":
            why = f"a candidate could not be measured: {verdicts[-1].reason}"
            return self._outcome("unmeasured", why)
        ended = _ENDED.get(stopped, "unmeasured")
        return self._outcome(ended, f"no candidate passed the gate: {reason}")

    @property
    def _in_batches(self) -> bool:
        """A rewrite of the whole body cannot be tried line by line."""
        return self._settings.search == "batch" or self._settings.update_mode != "patch"

    def _search(self) -> tuple[str, str]:
        """Run the search to its end: the kind of fault that ended it, if any, and the reason."""
        bench = self._bench
        search: BatchSearch | TrialSearch
        if self._in_batches:
            search = BatchSearch(bench)
        else:
            search = TrialSearch(bench, self._parameters)
        try:
            return "", search.run()
        except OutOfMeans as end:
            if end.capped:
                bench.ledger.notes.append(f"the search ended early: {end.reason}")
            return "", end.reason
        except StopRun as end:
            bench.ledger.notes.append(f"the search ended early: {end.reason}")
            return end.kind, end.reason

    def _compare(self, stopped: str, reason: str) -> TrainOutcome:
        """The last comparison; without it nothing may be written."""
        bench = self._bench
        if stopped and stopped != "cap":
            why = f"a better skill was found, but the last comparison was not made: {reason}"
            return self._outcome(_ENDED.get(stopped, "unmeasured"), why)
        tasks = self._measured_tasks()
        gate = self._open_final(tasks)
        try:
            verdict, before, after = bench.samples.compare(gate, bench.start, bench.incumbent)
        except StopRun as end:
            why = f"a better skill was found, but the last comparison was not made: {end.reason}"
            return self._outcome(_ENDED.get(end.kind, "unmeasured"), why)
        unsampled = [task.id for task in tasks if task.id not in before]
        earlier = {t: found for t, found in bench.samples.at_start().items() if t in unsampled}
        before = before | earlier
        test_before, test_after = self._open_test() if verdict.accepted else ({}, {})
        return self._outcome(
            verdict.decision,
            f"{verdict.reason}; the search ended: {reason}",
            verdict=verdict,
            before=before | test_before,
            after=after | test_after,
            from_search=len(earlier),
        )

    def _open_final(self, tasks: Sequence[SkillTask]) -> Gate:
        """The last comparison that the means which are left allow."""
        bench = self._bench
        bench.allowance.held, bench.allowance.reserve = 0, self._test_samples()
        final = self._final.within(bench.allowance.left())
        if not final.rollouts:
            bench.ledger.notes.append(
                "the cap left no complete round for the last comparison: it stopped when its "
                "verdict was certain, and where the skill on disk has no fresh sample its rate is "
                "that of the samples of the search"
            )
        options = replace(
            bench.gate_options(),
            rollouts=final.rollouts,
            first=tuple(bench.samples.failed_at_start(tasks)),
        )
        return make_gate(final.gate, [GateTask(t.id, t.must_pass) for t in tasks], options)

    def _open_test(self) -> tuple[dict[str, list[Rollout]], dict[str, list[Rollout]]]:
        """Measure the test tasks once under both documents, for the report alone."""
        bench = self._bench
        wanted = {task.id: task.rollouts or self._settings.rollouts for task in bench.test}
        bench.allowance.release()
        try:
            before, after = bench.samples.take_all(
                [(bench.start, wanted), (bench.incumbent, wanted)], "test"
            )
        except (StopRun, OutOfMeans) as end:
            bench.ledger.notes.append(f"the test split was not measured: {end.reason}")
            return {}, {}
        return before, after

    def _outcome(
        self,
        status: Status,
        reason: str,
        *,
        verdict: Verdict | None = None,
        before: Mapping[str, list[Rollout]] | None = None,
        after: Mapping[str, list[Rollout]] | None = None,
        from_search: int = 0,
    ) -> TrainOutcome:
        bench = self._bench
        before, after = before or {}, after or {}
        accepted = status == "accepted"
        changes = {row.task: row.change for row in verdict.tasks} if verdict else {}
        rows = [
            task_row(task, before[task.id], after.get(task.id, []), changes.get(task.id, "same"))
            for task in [*self._measured_tasks(), *bench.test]
            if task.id in before
        ]
        return TrainOutcome(
            skill=self._skill,
            before=bench.start,
            after=bench.incumbent if accepted else bench.start,
            status=status,
            reason=reason,
            proposal=bench.incumbent,
            accepted=tuple(bench.accepted),
            verdict=verdict,
            suite=_comparison(rows, ("train", "val", "both")),
            from_search=from_search,
            val=_comparison(rows, ("val", "both")),
            test=_comparison(rows, ("test",)),
            steps=tuple(bench.ledger.steps),
            edits=tuple(bench.ledger.edits),
            tasks=tuple(rows),
            shared_train_val=bench.shared,
            notes=tuple(self._notes()),
            samples=bench.allowance.samples,
            optimizer_calls=self._calls.asked,
            spent=bench.allowance.spent,
        )

    def _notes(self) -> list[str]:
        bench = self._bench
        notes = [*bench.context.memory.notes, *bench.ledger.notes]
        notes += bench.context.vetting.warnings(bench.start, bench.incumbent)
        if self._calls.unreadable:
            notes.append(
                f"{self._calls.unreadable} of {self._calls.asked} replies of the optimizer could "
                "not be read, not even after a repair; they were left out"
            )
        if self._calls.lost:
            notes.append(
                f"{self._calls.lost} of {self._calls.asked} optimizer calls were not answered by "
                "the provider; they were left out"
            )
        return list(dict.fromkeys(notes))

    def _measured_tasks(self) -> list[SkillTask]:
        """All tasks of train and val, each once."""
        bench = self._bench
        return list({task.id: task for task in [*bench.train, *bench.val]}.values())

    def _test_samples(self) -> int:
        return 2 * sum(task.rollouts or self._settings.rollouts for task in self._bench.test)

    def _search_samples(self, tasks: Sequence[SkillTask]) -> int:
        if self._in_batches:
            return 0
        return self._parameters.search_samples(sum(task.split != "test" for task in tasks))

    def _shortage(self) -> str:
        """Why the caps cannot pay for the last comparison and a search before it, if so."""
        bench, cap = self._bench, self._settings.max_rollouts
        least = bench.allowance.reserve + len(bench.train) + len(bench.val)
        if not cap or cap >= least:
            return ""
        return (
            f"--skillopt-max-rollouts leaves {cap} for this skill and nothing to search with: the "
            f"last comparison and the test split need {bench.allowance.reserve} and the first look "
            f"at the suite {least - bench.allowance.reserve}; allow at least {least} for each "
            "skill, or lower --skillopt-final-rollouts"
        )


def _check(tasks: Sequence[SkillTask]) -> None:
    for name in ("train", "val"):
        if not any(task.split in (name, "both") for task in tasks):
            raise ValueError(
                f"no {name} task: a training needs at least one train and one val task"
            )


def _run_name(document: Document, settings: Settings, tasks: Sequence[SkillTask]) -> str:
    """Identity of a training: what starts from here with this seed and suite is this run again."""
    parts = [document.version, settings.seed, sorted(task.id for task in tasks)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _comparison(rows: Sequence[TaskRow], splits: tuple[str, ...]) -> Comparison | None:
    chosen = [row for row in rows if row.split in splits]
    before = suite_rate((row.before.passed, row.before.n) for row in chosen)
    if before is None:
        return None
    after: Rate | None = suite_rate((row.after.passed, row.after.n) for row in chosen if row.after)
    return Comparison(before=before, after=after)
