"""Mode ``--skillopt-train``: improve each skill of the suite, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_skillopt.compare.comparison import with_none
from pytest_skillopt.modes.forecast import usual_rollouts
from pytest_skillopt.modes.skills import suite_of
from pytest_skillopt.report.live import FINAL, SEARCH
from pytest_skillopt.rollouts.idle import passed_by_nothing
from pytest_skillopt.rollouts.rollout import IDLE
from pytest_skillopt.run.directory import write_skill
from pytest_skillopt.run.journal import EXPECTED, LOST, RATES, UNANSWERED, JournaledModel
from pytest_skillopt.run.result import Findings
from pytest_skillopt.search.extensions import Stages, search_of
from pytest_skillopt.search.final_comparison import BEGUN, known_shortage
from pytest_skillopt.search.history import ROUND, Observer
from pytest_skillopt.search.outcome import check_together
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.skill.read import read_version
from pytest_skillopt.skill.text import SkillError
from pytest_skillopt.skill.trained import Trained
from pytest_skillopt.words import number, p_value_of_search, passes_with_nothing, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pytest

    from pytest_skillopt.model.purse import Purse
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import EditRow, Result, SkillResult, StepRow
    from pytest_skillopt.search.outcome import TrainOutcome
    from pytest_skillopt.skill.text import Text
    from pytest_skillopt.skill.version import Version


def train(run: Run, display: Display) -> Result:
    """Train all skills, then write the accepted ones."""
    if any(_can_search(run, skill) for skill in run.versions):
        run.probe()
    _note_what_nothing_passes(run, display)
    outcomes = _train_each(run, display)
    together = bool(_new_descriptions(run, outcomes))
    margin = search_of(run.settings).rule.margin
    outcomes, whole = check_together(outcomes, margin, together=together)
    if whole:
        run.notes.append(whole)
    results = _write_accepted(run, outcomes, together=together)
    is_resumable = any(outcome.resumable for outcome in outcomes)
    caps = sorted(filter(None, (outcome.cap for outcome in outcomes)), key=_value_of)
    resume = run.resume_command(caps) if is_resumable else ""
    return run.result_of(results, resume=resume)


def _value_of(setting: str) -> float:
    return float(setting.partition("=")[2])


def _can_search(run: Run, skill: str) -> bool:
    """Return whether the caps leave a skill anything to search with, as far as is known."""
    purse = run.meter.purse.share(len(run.versions))
    suite = suite_of(run.tasks, skill, run.settings)
    return not known_shortage(purse, run.settings, suite)


def _train_each(run: Run, display: Display) -> list[TrainOutcome]:
    """Train one skill after the other, each with an equal part of the budget that is left."""
    outcomes: list[TrainOutcome] = []
    for place, skill in enumerate(run.versions):
        named = f"{skill}: " if len(run.versions) > 1 else ""
        if named:
            display.line(f"skillopt: {skill}, skill {place + 1} of {len(run.versions)}")
        # Rollouts of the skill before that still run would count against this one.
        run.sampler.settle()
        purse = run.meter.purse.share(len(run.versions) - place)
        rivals = {**run.versions, **{o.skill: o.after for o in outcomes}}
        renewed = _new_descriptions(run, outcomes)
        outcome = _unless_interrupted(_train_skill(run, display, skill, purse, rivals, renewed))
        outcomes.append(outcome)
        run.notes += [named + note for note in outcome.notes]
        if outcome.status == "interrupted":
            break
    return outcomes


def _write_accepted(
    run: Run, outcomes: Sequence[TrainOutcome], *, together: bool
) -> list[SkillResult]:
    """Write the accepted skills, and return the result of each.

    If they were measured ``together``, none is written after one that could not be.
    """
    results: list[SkillResult] = []
    lost = ""
    for outcome in outcomes:
        hindered = _write(run, outcome, lost) if outcome.status == "accepted" else ""
        if hindered and together:
            lost = lost or outcome.skill
        results.append(_skill_result(run, outcome, hindered))
    return results


def _note_what_nothing_passes(run: Run, display: Display) -> None:
    """Find the tasks that an agent passes which does nothing, and note them, once in a run."""

    def find() -> dict[str, Any]:
        versions = run.versions.items()
        digests = {path: run.sampler.add_version(path, one) for path, one in versions}
        tasks = passed_by_nothing(run.sampler, run.tasks, digests)
        return {"passed": [[task.id, task.source] for task in tasks]}

    passed = run.journal.once(IDLE, find)["passed"]
    if sentence := passes_with_nothing([task for task, _ in passed]):
        run.notes.append(sentence)
        display.line(f"skillopt: {sentence}")


def _unless_interrupted(outcome: TrainOutcome) -> TrainOutcome:
    """Return an outcome as interrupted if only what follows its verdict is missing."""
    if not outcome.resumable or outcome.status not in ("accepted", "rejected"):
        return outcome
    reason = f"{outcome.reason}; what follows the verdict was interrupted"
    known = {"status": "interrupted", "reason": reason, "after": outcome.before}
    return outcome.model_copy(update=known)


def _new_descriptions(run: Run, outcomes: Sequence[TrainOutcome]) -> dict[str, Text]:
    """Return the SKILL.md with new descriptions, by path, which the next skills compete with."""
    if not run.settings.train_description:
        return {}
    return {
        outcome.skill: outcome.after.main
        for outcome in outcomes
        if outcome.after.main.description != outcome.before.main.description
    }


def _train_skill(
    run: Run,
    display: Display,
    skill: str,
    purse: Purse,
    rivals: Mapping[str, Version],
    renewed: Mapping[str, Text],
) -> TrainOutcome:
    display.begin(SEARCH)
    # A run that is continued with another number of workers asks for the same samples.
    width = run.journal.once("width", lambda: {"rollouts": run.sampler.at_once})
    optimizer = JournaledModel(run.models.get("optimizer"), run.journal, display.thinking)
    suite = suite_of(run.tasks, skill, run.settings)
    others = {path: rival for path, rival in rivals.items() if path != skill}
    stages = Stages.hooked(display.config, run.settings)
    observer = _Observer(run, display, skill)
    trainer = Trainer(
        run.versions[skill],
        suite,
        run.sampler,
        optimizer,
        run.settings,
        skill=skill,
        root=run.root,
        stages=stages,
        observer=observer,
        at_once=width["rollouts"],
        purse=purse,
        rivals=others,
        renewed=renewed,
    )
    outcome = trainer.run()
    if outcome.status in ("interrupted", "unmeasured"):
        run.journal.drop_losses()
    else:
        run.journal.keep_losses(LOST, UNANSWERED)
    if outcome.verdict is not None:
        about = {"skill": skill, "candidate": outcome.proposal.digest}
        run.journal.write("verdict", {**about, **outcome.verdict.to_json()})
    return outcome


class _Observer(Observer):
    """Observer that shows each step, calls the hook, and records decisions in the journal."""

    def __init__(self, run: Run, display: Display, skill: str) -> None:
        journal = run.journal
        self.begun = [data for data in journal.kept(BEGUN) if data["skill"] == skill]
        self.rounds = [data for data in journal.kept(ROUND) if data["skill"] == skill]
        self._run = run
        self._display = display
        self._skill = skill
        others = list(run.versions)
        later = others[others.index(skill) + 1 :]
        suites = [suite_of(run.tasks, other, run.settings) for other in later]
        self._later = sum(usual_rollouts(suite, run.settings) for suite in suites)
        """Usual rollouts of the trainings that follow this one."""

    def step(self, row: StepRow) -> None:
        if row.verdict not in ("none", "unmeasured"):
            self._run.journal.keep_losses(LOST, UNANSWERED)
        self._run.journal.write("step", {"skill": self._skill, **row.model_dump()})
        self._display.step(row)
        config: pytest.Config = self._display.config
        config.hook.pytest_skillopt_step(config=config, step=row)

    def rates(self, start: float, now: float) -> None:
        self._display.rates(start, now)
        self.record(RATES, {"start": round(start, 3), "now": round(now, 3)})

    def expects(self, more: float) -> None:
        more = round(more + self._later)
        self._display.expects(more)
        self._run.journal.write(EXPECTED, {"more": more})

    def joins(self, row: EditRow) -> None:
        self._display.joins(row)

    def goes(self, row: EditRow) -> None:
        self._display.goes(row)

    def compares(self, edits: int, e_value: float, most: int) -> None:
        what = f"{plural(edits, 'edit')} against the skill as it is"
        rollouts = f"at most {number(most)} fresh rollouts"
        self._display.line(
            f"skillopt: the verdict on {what}, by {rollouts}; {p_value_of_search(e_value)}"
        )
        self._display.begin(FINAL)

    def record(self, kind: str, data: dict[str, Any]) -> None:
        if kind in (ROUND, BEGUN):
            self._run.journal.keep_losses(LOST, UNANSWERED)
        self._run.journal.write(kind, {"skill": self._skill, **data})


def _write(run: Run, outcome: TrainOutcome, lost: str) -> str:
    """Write a skill, if the file is unchanged since the training began; else say why not.

    ``lost`` is an accepted skill that it was measured beside, and that was not written.
    """
    if not run.settings.write:
        return "skillopt_write is no"
    if lost:
        return f"it was measured beside the new {lost}, which was not written"
    path = run.root / outcome.skill
    trained = Trained.of(run.settings)
    about = {"skill": outcome.skill, "version": outcome.after.digest}
    try:
        now = read_version(path, run.root, trained)
        if now != outcome.after:
            _refuse_added(path, now, outcome)
            run.journal.write("writing", about)
            write_skill(run.root, run.home, outcome.skill, outcome.before, outcome.after, trained)
    except SkillError as error:
        return f"{error}; the change is in {run.directory.path / 'skill.patch'}"
    run.journal.write("written", about)
    return ""


def _refuse_added(path: Path, now: Version, outcome: TrainOutcome) -> None:
    """Raise SkillError if the skill has a file by now with which the new version never ran."""
    for name in now.keys() - outcome.before.keys() - outcome.after.keys():
        place = path.parent / name
        raise SkillError(f"{place} was added during the run")


def _skill_result(run: Run, outcome: TrainOutcome, hindered: str) -> SkillResult:
    findings: dict[str, Any] = {name: getattr(outcome, name) for name in Findings.model_fields}
    findings |= with_none(run, outcome.skill, outcome.tasks)
    if outcome.verdict:
        findings["verdict"] = outcome.verdict.to_json()
    return run.skill_result(
        outcome.skill,
        outcome.before,
        outcome.after,
        written=outcome.status == "accepted" and not hindered,
        unwritten=hindered,
        **findings,
    )
