"""``pytest --skillopt``: K rollouts of every task under the skill on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.gate.rates import suite_rate
from pytest_skillopt.modes.baseline import write_baseline
from pytest_skillopt.run.result import Comparison, SkillResult
from pytest_skillopt.search.taskrows import task_row
from pytest_skillopt.suite.sampler import StopRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.modes.display import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Result, Status, TaskRow
    from pytest_skillopt.suite.rollouts import Rollout, RolloutRequest

STREAM = "eval"


def evaluate(run: Run, display: Display) -> Result:
    """Measure every skill of the suite; what was measured before a cap or a fault is kept."""
    display.begin("evaluation")
    rollouts: dict[str, list[Rollout]] = {task.id: [] for task in run.tasks}
    skills: list[SkillResult] = []
    try:
        for skill in run.documents:
            requests = _requests(run, skill)
            try:
                _keep(run.sampler.take(requests), rollouts)
            except StopRun as stop:
                _keep(run.sampler.take([r for r in requests if run.sampler.known(r)]), rollouts)
                partial = {"status": "unmeasured", "reason": stop.reason}
                skills.append(_skill_result(run, skill, rollouts).model_copy(update=partial))
                raise
            skills.append(_skill_result(run, skill, rollouts))
    except StopRun as stop:
        ended: Status = "interrupted" if stop.kind == "interrupted" else "unmeasured"
        return run.result(ended, stop.reason, skills)
    measured = [skill for skill in skills if skill.status == "measured"]
    status: Status = "measured" if len(measured) == len(skills) else "unmeasured"
    reason = "; ".join(skill.reason for skill in skills)
    if run.mode.save_baseline and status == "measured":
        run.notes.append(f"the counts are kept in {write_baseline(run, rollouts).name}")
    return run.result(status, reason, skills)


def _requests(run: Run, skill: str) -> list[RolloutRequest]:
    """Every task once, then every task that wants more a second time, and so on."""
    version = run.sampler.add_version(skill, run.documents[skill].data)
    tasks = run.tasks_of(skill)
    return [
        run.sampler.request(task.id, version, STREAM, index)
        for index in range(max(task.rollouts or run.settings.rollouts for task in tasks))
        for task in tasks
        if index < (task.rollouts or run.settings.rollouts)
    ]


def _keep(taken: Sequence[Rollout], rollouts: dict[str, list[Rollout]]) -> None:
    for rollout in taken:
        rollouts[rollout.request.task].append(rollout)


def _skill_result(run: Run, skill: str, rollouts: dict[str, list[Rollout]]) -> SkillResult:
    document, tasks = run.documents[skill], run.tasks_of(skill)
    rows = [task_row(task, rollouts[task.id], []) for task in tasks]
    rate = suite_rate((row.before.passed, row.before.n) for row in rows)
    unmeasured = [row for row in rows if not row.before.n and not row.skipped]
    status: Status = "unmeasured"
    if unmeasured:
        reason = f"{skill}: {_why_unmeasured(unmeasured, len(rows))}"
    elif rate is None:
        reason = f"{skill}: every task was skipped"
    else:
        status, reason = "measured", f"{skill}: pass rate {rate.rate:.1%} over {rate.tasks} tasks"
    return SkillResult(
        path=skill,
        name=document.name,
        before=document.version,
        after=document.version,
        status=status,
        reason=reason,
        suite=Comparison(before=rate) if rate else None,
        tasks=rows,
    )


def _why_unmeasured(rows: Sequence[TaskRow], tasks: int) -> str:
    """How many of the tasks were never measured, and what the first of them met."""
    first, sample = rows[0].id, rows[0].before.sample
    met = f": {sample.message}" if sample and sample.message else ""
    return f"{len(rows)} of {tasks} tasks could not be measured, the first {first}{met}"
