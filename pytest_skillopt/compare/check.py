"""Ask whether an edited skill is worse than an earlier version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.compare.comparison import Question
from pytest_skillopt.compare.gates import RegressionCheck
from pytest_skillopt.compare.versions import NONE, Revision
from pytest_skillopt.search.extensions import gate_options, gate_tasks
from pytest_skillopt.skill.trained import Trained
from pytest_skillopt.skill.version import NO_SKILL

if TYPE_CHECKING:
    from pytest_skillopt import Version
    from pytest_skillopt.compare.comparison import Fields
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult, Status


def ask_if_worse(run: Run, skill: str) -> Question | SkillResult:
    """Compare a skill with an earlier version; SkillError if git has none."""
    now, ref = run.versions[skill], run.mode.argument
    then, moved = _then(run, skill)
    status: Status = "unmeasured"
    if moved:
        run.notes.append(f"{skill} is compared with {moved} at {ref}")
    if then is None:
        why = "there is nothing to compare it with; if it was moved, stage that with git add"
        reason = f"{skill} did not exist at {ref}: {why}"
    elif then.digest == now.digest:
        status, reason = "unchanged", f"{skill} is the same as at {ref}: nothing was run"
    else:
        gate = RegressionCheck(gate_tasks(run.tasks_of(skill)), gate_options(run.settings))
        return Question(before=then, after=now, gate=gate, told=_as_val)
    return run.skill_result(skill, now, now, status=status, reason=reason)


def _as_val(found: Fields) -> Fields:
    return {"val": found["suite"]}


def _then(run: Run, skill: str) -> tuple[Version | None, str]:
    """Return the earlier version, None for a new skill, and its path if it had another one."""
    ref, trained = run.mode.argument, Trained.of(run.settings)
    if ref == NONE:
        return NO_SKILL, ""
    revision = Revision(run.root, ref)
    if then := revision.skill(skill, trained):
        return then, ""
    revision.check_known(skill)
    place = revision.moved(skill)
    return (revision.skill(place, trained), place) if place else (None, "")
