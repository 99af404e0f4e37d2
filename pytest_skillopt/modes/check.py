"""``pytest --skillopt-check``: is the working tree's skill worse than the one at a revision?"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from pytest_skillopt.gate.regression import RegressionCheck
from pytest_skillopt.modes.compare import (
    compared,
    gate_tasks,
    joined_reasons,
)
from pytest_skillopt.modes.skills import RevisionError, at_revision, is_staged_differently
from pytest_skillopt.run.result import SkillResult
from pytest_skillopt.search.stages import gate_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Result, Status
    from pytest_skillopt.suite.rollouts import Rollout

_WORST_FIRST: tuple[Status, ...] = ("rejected", "unmeasured", "accepted", "unchanged")

NAME = ".skillopt-baseline.json"


def check(run: Run, display: Display) -> Result:
    """Compare every skill of the suite with its older self.

    Raises:
        pytest.UsageError: there is no such revision.
        StopRun: a cap, a fatal fault, or an interrupt.
    """
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
    if is_staged_differently(run.root, skill):
        run.notes.append(
            f"{skill} is staged in another version than the working tree's, which "
            "is the one that is checked"
        )
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
        result = compared(run, skill, gate, then, now, stored=stored)
        return result.model_copy(update={"val": result.suite})
    return SkillResult(
        path=skill,
        name=now.name,
        before=now.version,
        after=now.version,
        status=status,
        reason=reason,
    )


class _Task(BaseModel):
    model_config = ConfigDict(extra="forbid")
    source: str
    outcomes: list[bool]
    scores: list[float]


class _Skill(BaseModel):
    model_config = ConfigDict(extra="forbid")
    version: str
    tasks: dict[str, _Task]


class _Baseline(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())  # of pydantic 2.8
    schema_version: Literal[1] = 1
    written: str
    model: str
    """Fingerprint of the target and its parameters."""
    model_name: str
    skills: dict[str, _Skill]


def write_baseline(run: Run, rollouts: Mapping[str, Sequence[Rollout]]) -> Path:
    """Keep the measured rollouts of an evaluation, by task."""
    skills: dict[str, _Skill] = {}
    for skill, document in run.documents.items():
        tasks = {
            task.id: _Task(
                source=task.source,
                outcomes=[r.passed for r in rollouts[task.id] if r.measured],
                scores=[r.score or 0.0 for r in rollouts[task.id] if r.measured],
            )
            for task in run.tasks_of(skill)
        }
        skills[skill] = _Skill(version=document.version, tasks=tasks)
    baseline = _Baseline(
        written=datetime.now(UTC).isoformat(timespec="seconds"),
        model=run.fingerprint,
        model_name=run.roles.get("target", ""),
        skills=skills,
    )
    path = run.root / NAME
    path.write_text(json.dumps(baseline.model_dump(), indent=1) + "\n", encoding="utf-8")
    return path


def read_baseline(run: Run, skill: str, version: str) -> dict[str, list[tuple[bool, float]]]:
    """Samples of a version that need not be taken, by task: (passed, score).

    A note of the run says why stored counts do not fit.
    """
    problem = ""
    try:
        baseline = _Baseline.model_validate_json((run.root / NAME).read_bytes())
        stored = baseline.skills.get(skill)
        if baseline.model != run.fingerprint:
            problem = f"it was measured with {baseline.model_name}"
        elif stored is None or stored.version != version:
            problem = f"it was measured with another version of {skill}"
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        problem = f"it cannot be read ({type(error).__name__})"
    if problem or stored is None:
        run.notes.append(f"{NAME} is not used: {problem}")
        return {}
    sources = {task.id: task.source for task in run.tasks_of(skill)}
    fitting = {
        name: list(zip(task.outcomes, task.scores, strict=False))
        for name, task in stored.tasks.items()
        if sources.get(name) == task.source
    }
    if changed := len(sources) - len(fitting):
        run.notes.append(f"{NAME}: {changed} of {len(sources)} tasks have changed since")
    return fitting
