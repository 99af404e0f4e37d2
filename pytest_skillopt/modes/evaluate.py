"""``pytest --skillopt``: K rollouts of every task under the skill on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.modes.check import write_baseline
from pytest_skillopt.modes.compare import joined_reasons
from pytest_skillopt.run.result import Comparison, SkillResult
from pytest_skillopt.search.outcome import suite_rate, task_row
from pytest_skillopt.suite.sampler import StopRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Result, Status, TaskRow
    from pytest_skillopt.suite.rollouts import Rollout, RolloutRequest

STREAM = "eval"


def evaluate(run: Run, display: Display) -> Result:
    """Measure every skill of the suite; what was measured before a cap or a fault is kept."""
    requests = _requests(run)
    display.begin("evaluation")
    stop = None
    try:
        taken = _take_what_fits(run, requests)
    except StopRun as end:
        stop = end
        taken = run.sampler.take([r for r in requests if run.sampler.known(r)])
    rollouts: dict[str, list[Rollout]] = {task.id: [] for task in run.tasks}
    for rollout in taken:
        rollouts[rollout.request.task].append(rollout)
    skills = [_skill_result(run, skill, rollouts) for skill in run.documents]
    if stop is None and run.mode.save_baseline and all(s.status == "measured" for s in skills):
        run.notes.append(f"the counts are kept in {write_baseline(run, rollouts).name}")
    if stop is not None:
        skills = [_ended_early(skill, stop) for skill in skills]
        run.notes.append(f"{stop.reason} after {len(taken)} of {len(requests)} rollouts")
    status: Status = "measured" if all(s.status == "measured" for s in skills) else "unmeasured"
    if stop is not None and stop.kind == "interrupted":
        status = "interrupted"
    return run.result(status, joined_reasons(skills), skills)


def _requests(run: Run) -> list[RolloutRequest]:
    """Every task of every skill once, then all that want more a second time, and so on."""
    versions = {
        skill: run.sampler.add_version(skill, document.packed)
        for skill, document in run.documents.items()
    }
    wanted = {task.id: task.rollouts or run.settings.rollouts for task in run.tasks}
    return [
        run.sampler.request(task.id, versions[task.skill], STREAM, index)
        for index in range(max(wanted.values()))
        for task in run.tasks
        if index < wanted[task.id]
    ]


def _take_what_fits(run: Run, requests: Sequence[RolloutRequest]) -> list[Rollout]:
    """All of them or, under a cap on rollouts, as many as it allows, and StopRun."""
    left = run.sampler.rollouts_left
    new = [request for request in requests if not run.sampler.known(request)]
    if left is not None and left < len(new):
        run.sampler.take(new[:left])
        raise StopRun(f"--skillopt-max-rollouts={run.settings.max_rollouts} is reached")
    return run.sampler.take(requests)


def _ended_early(skill: SkillResult, stop: StopRun) -> SkillResult:
    """A cap leaves a smaller measurement; after a fault or an interrupt there is none."""
    if stop.kind != "cap":
        return skill.model_copy(update={"status": "unmeasured", "reason": stop.reason})
    measured = [row for row in skill.tasks if row.before.n]
    if not measured:
        return skill
    reason = f"{skill.path}: {len(measured)} of {len(skill.tasks)} tasks were measured"
    return skill.model_copy(update={"status": "measured", "reason": reason})


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
