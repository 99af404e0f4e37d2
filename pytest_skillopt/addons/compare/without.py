"""Measurements of a skill's tasks without any skill, from earlier comparisons with ``none``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.run.directory import JOURNAL, mode_of
from pytest_skillopt.run.journal import entries_of
from pytest_skillopt.search.outcome import arm_of, suite_rate
from pytest_skillopt.skill.document import NO_SKILL
from pytest_skillopt.suite.rollouts import Rollout

if TYPE_CHECKING:
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Arm, SkillResult


def with_none(run: Run, result: SkillResult) -> SkillResult:
    """Add the measurements without any skill to the result of a training."""
    none, measured_by = _without_skill(run, result.path)
    rows = [row.model_copy(update={"none": none.get(row.id)}) for row in result.tasks]
    counts = [(row.none.passed, row.none.n) for row in rows if row.split != "test" and row.none]
    whole = suite_rate(counts)
    if whole and result.suite and whole.tasks < result.suite.before.tasks:
        whole = None
    added = {"tasks": rows, "none": whole, "none_from": measured_by}
    return result.model_copy(update=added)


def _without_skill(run: Run, skill: str) -> tuple[dict[str, Arm], str]:
    """Return the latest run that compared with ``none``: its results by task, and its name."""
    sources = {task.id: task.source for task in run.tasks_of(skill)}
    same = {"skill": skill, "version": NO_SKILL.version, "model": run.fingerprint}
    for name in reversed(run.home.run_names()):
        if mode_of(run.home.runs / name) == "train":
            continue
        found: dict[str, list[Rollout]] = {}
        try:
            for data in entries_of(run.home.runs / name / JOURNAL, "rollout"):
                asked = data["request"]
                if same.items() <= asked.items() and sources.get(asked["task"]) == asked["source"]:
                    found.setdefault(asked["task"], []).append(Rollout.from_json(data))
        except (OSError, KeyError, TypeError, AttributeError):
            continue  # a journal in the form of another version of the package
        if found:
            return {task: arm_of(rollouts) for task, rollouts in found.items()}, name
    return {}, ""
