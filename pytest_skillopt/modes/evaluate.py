"""Mode ``--skillopt``: measure every skill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.compare.comparison import GO_ON
from pytest_skillopt.rollouts.sampler import OF_ONE_SKILL, Stop, StopRun
from pytest_skillopt.search.outcome import comparison, cost_of, task_row
from pytest_skillopt.words import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.report.live import Display
    from pytest_skillopt.rollouts.rollout import Rollout, RolloutRequest
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Comparison, Result, SkillResult, Status, TaskRow

STREAM = "eval"
"""Stream of the samples of an evaluation."""


def evaluate(run: Run, display: Display) -> Result:
    """Measure every skill of the suite; keep what was measured before a cap or a fault."""
    requests = _requests(run)
    display.begin("evaluation")
    stops: dict[str, StopRun] = {}
    try:
        taken = _take_what_fits(run, requests)
    except StopRun as stop:
        stops = dict.fromkeys(run.versions, stop)
        if stop.kind in OF_ONE_SKILL and len(stops) > 1:
            stops = _take_each(run, requests)
        if stop.kind is not Stop.INTERRUPTED:
            run.sampler.settle()  # what was under way is paid for
        known = [r for r in requests if r.skill not in stops or run.sampler.known(r)]
        taken = run.sampler.take(known)
    rollouts: dict[str, list[Rollout]] = {task.id: [] for task in run.tasks}
    for rollout in taken:
        rollouts[rollout.request.task].append(rollout)
    skills = [_skill_result(run, skill, rollouts, stops.get(skill)) for skill in run.versions]
    status: Status | None = None
    if any(stop.kind is Stop.INTERRUPTED for stop in stops.values()):
        status = "interrupted"
    return run.result_of(skills, status=status)


def _requests(run: Run) -> list[RolloutRequest]:
    """List rollouts in rounds: each task once, then each that has more rollouts, and so on."""
    versions = {
        skill: run.sampler.add_version(skill, version) for skill, version in run.versions.items()
    }
    wanted = {task.id: task.rollouts or run.settings.rollouts for task in run.tasks}
    requests = []
    for index in range(max(wanted.values())):
        for task in run.tasks:
            if index < wanted[task.id]:
                version = versions[task.skill]
                requests.append(run.sampler.request(task.id, version, STREAM, index))
    return requests


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
        The skills that were stopped, each with the reason; all that are left if another one cannot
        go on either.
    """
    stops: dict[str, StopRun] = {}
    left = list(run.versions)
    while left:
        run.sampler.settle()
        try:
            run.sampler.take([request for request in requests if request.skill == left[0]])
        except StopRun as stop:
            if stop.kind not in OF_ONE_SKILL:
                return stops | dict.fromkeys(left, stop)
            stops[left[0]] = stop
        del left[0]
    return stops


def _skill_result(
    run: Run, skill: str, rollouts: dict[str, list[Rollout]], stop: StopRun | None
) -> SkillResult:
    version = run.versions[skill]
    tasks = run.tasks_of(skill)
    rows = [task_row(task, rollouts[task.id], []) for task in tasks]
    suite = comparison(rows)
    status, reason = _answer(skill, rows, suite, stop)
    measured = {task.id: rollouts[task.id] for task in tasks}
    return run.skill_result(
        skill,
        version,
        version,
        status=status,
        reason=reason,
        suite=suite,
        tasks=rows,
        cost=cost_of(measured, {}),
    )


def _answer(
    skill: str, rows: Sequence[TaskRow], suite: Comparison | None, stop: StopRun | None
) -> tuple[Status, str]:
    """Return status and reason; after a cap the measured tasks count, after a fault none."""
    if stop is not None and stop.kind is not Stop.CAP:
        return "unmeasured", stop.reason
    if stop is not None:
        measured = sum(row.before.n for row in rows)
        status: Status = "measured" if measured else "unmeasured"
        many = plural(measured, "rollout")
        return status, f"{skill}: {many} before a cap ended it: {stop.reason}; {GO_ON}"
    missed = [row for row in rows if not row.before.n and not row.skipped]
    if missed:
        sample = missed[0].before.sample
        met = f": {sample.message}" if sample and sample.message else ""
        many = f"{len(missed)} of {len(rows)} tasks could not be measured"
        return "unmeasured", f"{skill}: {many}, the first {missed[0].id}{met}"
    if suite is None:
        return "unmeasured", f"{skill}: every task was skipped"
    return "measured", f"{skill}: {plural(suite.before.tasks, 'task')} measured"
