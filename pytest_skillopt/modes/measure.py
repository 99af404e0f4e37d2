"""Mode ``--skillopt``: measure every skill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.compare.baseline import save_baseline
from pytest_skillopt.rollouts.sampler import Stop, StopRun
from pytest_skillopt.run.openrun import joined_reasons
from pytest_skillopt.run.result import Comparison
from pytest_skillopt.search.outcome import cost_of, suite_rate, task_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.report.live import Display
    from pytest_skillopt.rollouts.rollout import Rollout, RolloutRequest
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Result, SkillResult, Status

STREAM = "eval"


def evaluate(run: Run, display: Display) -> Result:
    """Measure every skill of the suite; keep what was measured before a cap or a fault."""
    requests = _requests(run)
    display.begin("evaluation")
    stops: dict[str, StopRun] = {}
    try:
        taken = _take_what_fits(run, requests)
    except StopRun as stop:
        stops = dict.fromkeys(run.documents, stop)
        if stop.kind is Stop.BREAKER and len(stops) > 1:
            stops = _take_each(run, requests)
        known = [r for r in requests if r.skill not in stops or run.sampler.known(r)]
        taken = run.sampler.take(known)
    rollouts: dict[str, list[Rollout]] = {task.id: [] for task in run.tasks}
    for rollout in taken:
        rollouts[rollout.request.task].append(rollout)
    skills = [_skill_result(run, skill, rollouts) for skill in run.documents]
    skills = [_ended_early(s, stops[s.path]) if s.path in stops else s for s in skills]
    for reason in dict.fromkeys(stop.reason for stop in stops.values()):
        run.notes.append(f"after {len(taken)} of {len(requests)} rollouts: {reason}")
    status: Status = "measured" if all(s.status == "measured" for s in skills) else "unmeasured"
    if any(stop.kind is Stop.INTERRUPTED for stop in stops.values()):
        status = "interrupted"
    rows = [row for skill in skills for row in skill.tasks]
    wanted = display.config.option.skillopt_save_baseline and status == "measured"
    if wanted and all(row.before.n or row.skipped for row in rows):
        save_baseline(run, rollouts)
    return run.result(status, joined_reasons(skills), skills)


def _requests(run: Run) -> list[RolloutRequest]:
    """List rollouts in rounds: each task once, then each that has more rollouts, and so on."""
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
    """Take all rollouts; raise StopRun after the first ones if the cap allows no more."""
    left = run.sampler.rollouts_left
    new = [request for request in requests if not run.sampler.known(request)]
    if left is not None and left < len(new):
        run.sampler.take(new[:left])
        raise StopRun(f"--skillopt-max-rollouts={run.settings.max_rollouts} is reached")
    return run.sampler.take(requests)


def _take_each(run: Run, requests: Sequence[RolloutRequest]) -> dict[str, StopRun]:
    """Take the rollouts of one skill after the other, since errors of one may spare the others.

    Returns:
        The skills that were stopped, each with the reason; all that are left if it is another one
        than too many errors.
    """
    stops: dict[str, StopRun] = {}
    left = list(run.documents)
    while left:
        run.sampler.settle()
        try:
            run.sampler.take([request for request in requests if request.skill == left[0]])
        except StopRun as stop:
            if stop.kind is not Stop.BREAKER:
                return stops | dict.fromkeys(left, stop)
            stops[left[0]] = stop
        del left[0]
    return stops


def _ended_early(skill: SkillResult, stop: StopRun) -> SkillResult:
    """Restrict the result to the measured tasks after a cap; discard it after a fault."""
    if stop.kind is not Stop.CAP:
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
        first = unmeasured[0]
        sample = first.before.sample
        met = f": {sample.message}" if sample and sample.message else ""
        missed = f"{len(unmeasured)} of {len(rows)} tasks could not be measured"
        reason = f"{skill}: {missed}, the first {first.id}{met}"
    elif rate is None:
        reason = f"{skill}: every task was skipped"
    else:
        status, reason = "measured", f"{skill}: pass rate {rate.rate:.1%} over {rate.tasks} tasks"
    suite = Comparison(before=rate) if rate else None
    cost = cost_of({task.id: rollouts[task.id] for task in tasks}, {})
    found = {"status": status, "reason": reason, "suite": suite, "tasks": rows, "cost": cost}
    return run.skill_result(skill, document, document, **found)
