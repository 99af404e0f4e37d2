"""``.skillopt-baseline.json``: counts of a committed skill, so that it is not measured again.

Written by ``--skillopt --skillopt-save-baseline``, read by ``--skillopt-check``. A count is used
only for the very same version of the skill, target model and task source; what no longer fits is
measured again and named.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.suite.rollouts import Rollout

NAME = ".skillopt-baseline.json"


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
