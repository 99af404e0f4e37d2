"""``pytest --skillopt-check``: is the working tree's skill worse than the one at a revision?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.gate.regression import RegressionCheck
from pytest_skillopt.modes.compare import (
    compared,
    gate_tasks,
    joined_reasons,
)
from pytest_skillopt.modes.skills import RevisionError, at_revision
from pytest_skillopt.run.result import SkillResult
from pytest_skillopt.search.stages import gate_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Result, Status
    from pytest_skillopt.suite.rollouts import Rollout

BASELINE = ".skillopt-baseline.json"
"""Meant to be committed: what an evaluation measured, for the checks of later edits."""
_WORST_FIRST: tuple[Status, ...] = ("rejected", "unmeasured", "accepted", "unchanged")


def check(run: Run, display: Display) -> Result:
    """Compare every skill of the suite with its older self; UsageError where there is no
    revision."""
    display.begin("check")
    skills = [_check_skill(run, skill) for skill in run.documents]
    status = next(s for s in _WORST_FIRST if any(skill.status == s for skill in skills))
    return run.result(status, joined_reasons(skills), skills)


def _check_skill(run: Run, skill: str) -> SkillResult:
    now = run.documents[skill]
    try:
        then = at_revision(run.root, skill, run.mode.ref, run.settings.files)
    except RevisionError as error:
        raise pytest.UsageError(str(error)) from None
    status: Status = "unmeasured"
    if then is None:
        reason = f"{skill} did not exist at {run.mode.ref}: there is nothing to compare it with"
    elif then.version == now.version:
        status, reason = "unchanged", f"{skill} is the same as at {run.mode.ref}: nothing was run"
    else:
        stored = read_baseline(run, skill, then.version)
        tape = {task: len(found) for task, found in stored.items()}
        tasks = gate_tasks(run.tasks_of(skill))
        gate = RegressionCheck(tasks, gate_options(run.settings), tape=tape)
        result = compared(run, skill, gate, then, now, stored)
        return result.model_copy(update={"val": result.suite})
    return SkillResult(
        path=skill,
        name=now.name,
        before=now.version,
        after=now.version,
        status=status,
        reason=reason,
    )


def write_baseline(run: Run, rollouts: Mapping[str, Sequence[Rollout]]) -> Path:
    """Keep the measured rollouts of an evaluation, by task."""
    skills = {}
    for skill, document in run.documents.items():
        tasks = {}
        for task in run.tasks_of(skill):
            measured = [r for r in rollouts[task.id] if r.measured]
            outcomes, scores = [r.passed for r in measured], [r.score for r in measured]
            tasks[task.id] = {"source": task.source, "outcomes": outcomes, "scores": scores}
        skills[skill] = {"version": document.version, "tasks": tasks}
    kept = {"schema_version": 1, "model": run.fingerprint, "skills": skills}
    path = run.root / BASELINE
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return path


def read_baseline(run: Run, skill: str, version: str) -> dict[str, list[tuple[bool, float]]]:
    """(passed, score) of samples that need not be taken, by task; a note says why some are not
    used."""
    sources = {task.id: task.source for task in run.tasks_of(skill)}
    stored = {}
    try:
        kept = json.loads((run.root / BASELINE).read_bytes())
        found = kept["skills"].get(skill, {"version": ""})
        if (kept["model"], found["version"]) != (run.fingerprint, version):
            raise ValueError("it is of another model or version")
        for name, task in found["tasks"].items():
            if sources.get(name) == task["source"]:
                pairs = zip(task["outcomes"], task["scores"], strict=True)
                stored[name] = [(bool(passed), float(score)) for passed, score in pairs]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        run.notes.append(f"{BASELINE} is not used: {error}")
        return {}
    if changed := len(sources) - len(stored):
        run.notes.append(f"{BASELINE}: {changed} of {len(sources)} tasks have changed since")
    return stored
