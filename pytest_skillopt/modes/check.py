"""``pytest --skillopt-check``: is the working tree's skill worse than the one at a revision?"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
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
    from pytest_skillopt.skill.document import Document
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
        then = at_revision(run.root, skill, run.mode.ref)
    except RevisionError as error:
        raise pytest.UsageError(str(error)) from None
    if is_staged_differently(run.root, skill):
        run.notes.append(
            f"{skill} is staged in another version than the working tree's, which "
            "is the one that is checked"
        )
    if then is None:
        reason = f"{skill} did not exist at {run.mode.ref}: there is nothing to compare it with"
        return _unmeasured(skill, now, now, "unmeasured", reason)
    if then.version == now.version:
        reason = f"{skill} is the same as at {run.mode.ref}: nothing was run"
        return _unmeasured(skill, now, now, "unchanged", reason)
    return _compare(run, skill, then, now)


def _compare(run: Run, skill: str, then: Document, now: Document) -> SkillResult:
    stored = read_baseline(run, skill, then.version)
    tasks = gate_tasks(run.tasks_of(skill))
    gate = RegressionCheck(tasks, gate_options(run.settings), tape=stored.lengths())
    result = compared(run, skill, gate, then, now, stored=stored.outcomes)
    return result.model_copy(update={"val": result.suite})


def _unmeasured(
    skill: str, then: Document, now: Document, status: Status, reason: str
) -> SkillResult:
    return SkillResult(
        path=skill,
        name=now.name,
        before=then.version,
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
    model_config = ConfigDict(extra="forbid")
    schema_version: Literal[1] = 1
    written: str
    model: str
    """Fingerprint of the target and its parameters."""
    model_name: str
    skills: dict[str, _Skill]


@dataclass(frozen=True, slots=True)
class Stored:
    """Samples of the incumbent that need not be taken, by task: (passed, score)."""

    outcomes: Mapping[str, Sequence[tuple[bool, float]]] = field(default_factory=dict)

    def lengths(self) -> dict[str, int]:
        return {task: len(found) for task, found in self.outcomes.items()}


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


def read_baseline(run: Run, skill: str, version: str) -> Stored:
    """What of the stored counts fits; a note of the run says why the rest does not."""
    path = run.root / NAME
    try:
        baseline = _Baseline.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Stored()
    except (OSError, ValidationError) as error:
        run.notes.append(f"{NAME} is not used: it cannot be read ({type(error).__name__})")
        return Stored()
    stored = baseline.skills.get(skill)
    if baseline.model != run.fingerprint:
        run.notes.append(f"{NAME} is not used: it was measured with {baseline.model_name}")
        return Stored()
    if stored is None or stored.version != version:
        run.notes.append(f"{NAME} is not used: it was measured with another version of {skill}")
        return Stored()
    sources = {task.id: task.source for task in run.tasks_of(skill)}
    fitting = {
        name: list(zip(task.outcomes, task.scores, strict=False))
        for name, task in stored.tasks.items()
        if sources.get(name) == task.source
    }
    changed = len(sources) - len(fitting)
    if changed:
        run.notes.append(f"{NAME}: {changed} of {len(sources)} tasks have changed since")
    return Stored(fitting)
