"""``pytest --skillopt-check``: is the working tree's skill worse than the one at a revision?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.gate.regression import RegressionCheck
from pytest_skillopt.modes.baseline import read_baseline
from pytest_skillopt.modes.compare import (
    compared,
    decide,
    gate_tasks,
    joined_reasons,
)
from pytest_skillopt.modes.revisions import RevisionError, at_revision, is_staged_differently
from pytest_skillopt.run.result import SkillResult
from pytest_skillopt.search.stages import gate_options

if TYPE_CHECKING:
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Result, Status
    from pytest_skillopt.skill.document import Document

_WORST_FIRST: tuple[Status, ...] = ("rejected", "unmeasured", "accepted", "unchanged")


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
    tasks = run.tasks_of(skill)
    stored = read_baseline(run, skill, then.version)
    decided = decide(
        run,
        RegressionCheck(gate_tasks(tasks), gate_options(run.settings), tape=stored.lengths()),
        run.sampler.add_version(skill, then.data),
        run.sampler.add_version(skill, now.data),
        stored=stored.outcomes,
    )
    result = compared(skill, then, now, decided, tasks)
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
