"""Save the counts of an evaluation for later checks, and read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pytest_skillopt.compare.versions import NONE, Revision
from pytest_skillopt.model.structured import problems
from pytest_skillopt.skill.document import SkillError
from pytest_skillopt.skill.files import read_bounded, write_beside

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_skillopt.rollouts.rollout import Rollout
    from pytest_skillopt.run.openrun import Run

BASELINE = ".skillopt-baseline.json"
"""File with the outcomes of an evaluation, in the root directory, to commit for later checks."""
_MOST_BYTES = 20_000_000
"""Most bytes of that file."""
_MOST_SAMPLES = 10_000
"""Most samples of a task in that file."""


class _Kept(BaseModel):
    model_config = ConfigDict(strict=True)


class _Task(_Kept):
    """The samples of a task, with a score for each outcome."""

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

    schema_version: int = 1
    model: str
    skills: dict[str, _Measured]


def save_baseline(run: Run, rollouts: Mapping[str, Sequence[Rollout]]) -> None:
    """Write the outcomes and scores of an evaluation, by skill and task."""
    saved = _Baseline(model=run.fingerprint, skills={})
    for skill, document in run.documents.items():
        measured = _Measured(version=document.version, tasks={})
        saved.skills[skill] = measured
        for task in run.tasks_of(skill):
            found = [rollout for rollout in rollouts[task.id] if rollout.measured]
            measured.tasks[task.id] = _Task(
                source=task.source,
                outcomes=[rollout.passed for rollout in found],
                scores=[rollout.score or 0.0 for rollout in found],
            )
    place, text = run.root / BASELINE, f"{saved.model_dump_json(indent=1)}\n"
    try:
        write_beside(place, text.encode(), mode=0o644).replace(place)
        run.notes.append(f"the counts were saved in {BASELINE}")
    except OSError as error:  # what was measured is kept
        run.notes.append(f"{BASELINE} could not be written: {error.strerror}")


def read_baseline(run: Run, skill: str, version: str) -> dict[str, list[tuple[bool, float]]]:
    """Return (passed, score) of the samples in the revision's baseline, by task.

    What is not used is noted. The file of the revision counts: a change that is checked could have
    written that on disk.

    Raises:
        SkillError: the file is damaged.
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
        raise SkillError(
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
