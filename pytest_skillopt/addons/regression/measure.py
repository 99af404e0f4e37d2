"""Check whether an edited skill is worse than an earlier version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.addons.comparison import compared
from pytest_skillopt.addons.regression.baseline import read_baseline
from pytest_skillopt.addons.regression.gate import RegressionCheck
from pytest_skillopt.addons.revisions import RevisionError, at_revision
from pytest_skillopt.modes.measure import joined_reasons, of_one_version
from pytest_skillopt.search.extensions import gate_options, gate_tasks
from pytest_skillopt.skill.files import Trained

if TYPE_CHECKING:
    from pytest_skillopt import Result
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult, Status

_WORST_FIRST: tuple[Status, ...] = ("rejected", "unmeasured", "accepted", "unchanged")


def check(run: Run, display: Display) -> Result:
    """Compare every skill of the suite with an earlier version; UsageError if git has none."""
    display.begin("check")
    skills = [_check_skill(run, skill) for skill in run.documents]
    status = next(s for s in _WORST_FIRST if any(skill.status == s for skill in skills))
    return run.result(status, joined_reasons(skills), skills)


def _check_skill(run: Run, skill: str) -> SkillResult:
    now, ref = run.documents[skill], run.mode.argument
    try:
        then = at_revision(run.root, skill, ref, Trained.of(run.settings))
    except RevisionError as error:
        raise pytest.UsageError(str(error)) from None
    status: Status = "unmeasured"
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
    return of_one_version(skill, now, status, reason)
