"""``pytest --skillopt``: K rollouts of every task under the skill on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.modes.baseline import write_baseline
from pytest_skillopt.optimizer.rates import suite_rate
from pytest_skillopt.optimizer.taskrows import task_row
from pytest_skillopt.report.result import Comparison, SkillResult

if TYPE_CHECKING:
    from pytest_skillopt.modes.display import Display
    from pytest_skillopt.report.result import Result
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.suite.rollouts import Rollout

STREAM = "eval"


def evaluate(run: Run, display: Display) -> Result:
    """Measure every skill of the suite.

    Raises:
        StopRun: a cap, a fatal fault, or an interrupt.
    """
    display.begin("evaluation")
    rollouts: dict[str, list[Rollout]] = {task.id: [] for task in run.tasks}
    skills = [_evaluate_skill(run, skill, rollouts) for skill in run.documents]
    measured = [skill for skill in skills if skill.status == "measured"]
    status = "measured" if len(measured) == len(skills) else "unmeasured"
    reason = "; ".join(skill.reason for skill in skills)
    if run.mode.save_baseline and status == "measured":
        run.notes.append(f"the counts are kept in {write_baseline(run, rollouts).name}")
    return run.result(status, reason, skills)  # type: ignore[arg-type]


def _evaluate_skill(run: Run, skill: str, rollouts: dict[str, list[Rollout]]) -> SkillResult:
    """Measure one skill; its rollouts are added to ``rollouts`` by task."""
    document = run.documents[skill]
    version = run.sampler.add_version(skill, document.data)
    tasks = run.tasks_of(skill)
    requests = [
        run.sampler.request(task.id, version, STREAM, index)
        for index in range(max(task.rollouts or run.settings.rollouts for task in tasks))
        for task in tasks
        if index < (task.rollouts or run.settings.rollouts)
    ]
    for rollout in run.sampler.take(requests):
        rollouts[rollout.request.task].append(rollout)
    rows = [task_row(task, rollouts[task.id], []) for task in tasks]
    rate = suite_rate((row.before.passed, row.before.n) for row in rows)
    unmeasured = [row.id for row in rows if not row.before.n and not row.skipped]
    if rate is None or unmeasured:
        status = "unmeasured"
        reason = f"{skill}: {len(unmeasured)} tasks could not be measured, such as {unmeasured[0]}"
    else:
        status, reason = "measured", f"{skill}: pass rate {rate.rate:.1%} over {rate.tasks} tasks"
    return SkillResult(
        path=skill,
        name=document.name,
        before=version,
        after=version,
        status=status,  # type: ignore[arg-type]
        reason=reason,
        suite=Comparison(before=rate) if rate else None,
        tasks=rows,
    )
