"""Check whether an edited skill is worse than an earlier version; save counts for later checks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Self

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pytest_skillopt.compare.comparison import NONE, Revision, compared
from pytest_skillopt.compare.gates import RegressionCheck
from pytest_skillopt.model.structured import problems
from pytest_skillopt.modes.measure import joined_reasons, of_versions
from pytest_skillopt.rollouts.rollout import Rollout
from pytest_skillopt.run.directory import JOURNAL, Home
from pytest_skillopt.run.journal import entries_of
from pytest_skillopt.search.extensions import gate_options, gate_tasks
from pytest_skillopt.skill.document import NO_SKILL, SkillError
from pytest_skillopt.skill.files import Trained, read_bounded

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_skillopt import Document, Result
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult, Status

BASELINE = ".skillopt-baseline.json"
"""File with the outcomes of an evaluation, in the root directory, to commit for later checks."""
_MOST_BYTES = 20_000_000
"""Most bytes of that file."""
_MOST_SAMPLES = 10_000
"""Most samples of a task in that file."""
_WORST_FIRST: tuple[Status, ...] = ("rejected", "unmeasured", "accepted", "unchanged")


def check(run: Run, display: Display) -> Result:
    """Compare every skill of the suite with an earlier version; UsageError if git has none."""
    display.begin("check")
    skills = [_check_skill(run, skill) for skill in run.documents]
    status = next(s for s in _WORST_FIRST if any(skill.status == s for skill in skills))
    return run.result(status, joined_reasons(skills), skills)


def _check_skill(run: Run, skill: str) -> SkillResult:
    now, ref = run.documents[skill], run.mode.argument
    then, moved = _then(run, skill)
    status: Status = "unmeasured"
    if moved:
        run.notes.append(f"{skill} is compared with {moved} at {ref}")
    if then is None:
        reason = f"{skill} did not exist at {ref}: there is nothing to compare it with"
    elif then.version == now.version:
        status, reason = "unchanged", f"{skill} is the same as at {ref}: nothing was run"
    else:
        stored = read_baseline(run, skill, then.version)
        drawn = {task: len(found) for task, found in stored.items()}
        tasks = gate_tasks(run.tasks_of(skill))
        gate = RegressionCheck(tasks, gate_options(run.settings), drawn=drawn)
        result = compared(run, skill, gate, then, now, stored)
        return result.model_copy(update={"val": result.suite})
    return of_versions(run, skill, now, now, status=status, reason=reason)


def _then(run: Run, skill: str) -> tuple[Document | None, str]:
    """Return the earlier version, None for a new skill, and its path if it had another one.

    Raises:
        pytest.UsageError: git has no such revision, or cannot hold the skill.
    """
    ref, trained = run.mode.argument, Trained.of(run.settings)
    if ref == NONE:
        return NO_SKILL, ""
    revision = Revision(run.root, ref)
    if then := revision.skill(skill, trained):
        return then, ""
    revision.check_known(skill)
    place, then = revision.moved(skill, run.documents[skill], trained) or ("", None)
    return then, place


def write_baseline(root: Path, folder: str, result: Result) -> str:
    """Write the outcomes and scores of an evaluation, read from its journal, by skill and task.

    Returns:
        The name of the file in ``root``.
    """
    model, versions = "", {skill.path: skill.after for skill in result.skills}
    tasks: dict[str, dict[str, Any]] = {skill: {} for skill in versions}
    entries = entries_of(Home(root / folder).runs / result.run / JOURNAL, "rollout")
    for rollout in sorted(map(Rollout.from_json, entries), key=lambda found: found.request.index):
        request = rollout.request
        model = request.model
        kept = tasks[request.skill].setdefault(
            request.task, {"source": request.source, "outcomes": [], "scores": []}
        )
        if rollout.measured:
            kept["outcomes"].append(rollout.passed)
            kept["scores"].append(rollout.score)
    skills = {skill: {"version": versions[skill], "tasks": tasks[skill]} for skill in versions}
    saved = {"schema_version": 1, "model": model, "skills": skills}
    (root / BASELINE).write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")
    return BASELINE


class _Kept(BaseModel):
    model_config = ConfigDict(strict=True)


class _Task(_Kept):
    """The samples of a task, as ``write_baseline`` wrote them."""

    source: str
    outcomes: list[bool] = Field(max_length=_MOST_SAMPLES)
    scores: list[Annotated[float, Field(ge=0, le=1)]] = Field(max_length=_MOST_SAMPLES)

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if len(self.outcomes) != len(self.scores):
            raise ValueError("each outcome needs a score")
        return self


class _Measured(_Kept):
    """The samples of a version of a skill, by task."""

    version: str
    tasks: dict[str, _Task]


class _Baseline(_Kept):
    """The file ``BASELINE``."""

    model: str
    skills: dict[str, _Measured]


def read_baseline(run: Run, skill: str, version: str) -> dict[str, list[tuple[bool, float]]]:
    """Return (passed, score) of the samples in the revision's baseline, by task.

    What is not used is noted. The file of the revision counts: a change that is checked could have
    written that on disk.

    Raises:
        pytest.UsageError: the file is damaged.
    """
    ref = run.mode.argument
    data = None if ref == NONE else Revision(run.root, ref).read(BASELINE, _MOST_BYTES)
    _note_change(run, data)
    if data is None:
        return {}
    try:
        kept = _Baseline.model_validate_json(data)
    except ValidationError as error:
        said = problems(error, "it")
        raise pytest.UsageError(
            f"{BASELINE} at {ref} is damaged: {said}; write it anew with pytest --skillopt "
            "--skillopt-save-baseline, or remove it"
        ) from None
    found = kept.skills.get(skill)
    if found is None or (kept.model, found.version) != (run.fingerprint, version):
        run.notes.append(f"{BASELINE} is not used: it was measured with another model or version")
        return {}
    sources = {task.id: task.source for task in run.tasks_of(skill)}
    stored = {
        name: list(zip(task.outcomes, task.scores, strict=True))
        for name, task in found.tasks.items()
        if sources.get(name) == task.source
    }
    if changed := len(sources) - len(stored):
        run.notes.append(f"{BASELINE}: {changed} of {len(sources)} tasks have changed since")
    return stored


def _note_change(run: Run, then: bytes | None) -> None:
    """Note that the baseline on disk is another one than that of the revision."""
    try:
        now = read_bounded(run.root / BASELINE, _MOST_BYTES)
    except FileNotFoundError:
        now = None
    except (OSError, SkillError):
        now = b""
    ref = run.mode.argument
    used = f"that of {ref} is used" if then is not None else f"{ref} has none, so none is used"
    note = f"{BASELINE} was changed since {ref}: {used}"
    if now != then and note not in run.notes:
        run.notes.append(note)
