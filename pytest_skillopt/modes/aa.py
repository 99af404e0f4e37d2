"""``pytest --skillopt-aa``: the skill against itself, to learn what the suite can show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.gate.forecast import noise_floor, smallest_gain
from pytest_skillopt.modes.comparing import gate_options, joined_reasons
from pytest_skillopt.report import words
from pytest_skillopt.run.result import SkillResult
from pytest_skillopt.search.outcome import comparison
from pytest_skillopt.search.taskrows import task_row

if TYPE_CHECKING:
    from pytest_skillopt.modes.display import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Result, Status


def compare_with_itself(run: Run, display: Display) -> Result:
    """Two evaluations of one version: what differs between them is noise.

    Raises:
        StopRun: a cap, a fatal fault, or an interrupt.
    """
    display.begin("comparison with itself")
    skills = [_measure(run, skill) for skill in run.documents]
    unmeasured = any(skill.status == "unmeasured" for skill in skills)
    status: Status = "unmeasured" if unmeasured else "measured"
    return run.result(status, joined_reasons(skills), skills)


def _measure(run: Run, skill: str) -> SkillResult:
    document = run.documents[skill]
    version = run.sampler.add_version(skill, document.data)
    tasks = run.tasks_of(skill)
    rollouts = run.settings.rollouts
    taken = run.sampler.take(
        [
            run.sampler.request(task.id, version, stream, index)
            for index in range(rollouts)
            for stream in ("aa/1", "aa/2")
            for task in tasks
        ]
    )
    rows = [
        task_row(
            task,
            [r for r in taken if r.request.task == task.id and r.request.stream == "aa/1"],
            [r for r in taken if r.request.task == task.id and r.request.stream == "aa/2"],
        )
        for task in tasks
    ]
    counts = [
        (
            row.before.passed + (row.after.passed if row.after else 0),
            row.before.n + (row.after.n if row.after else 0),
        )
        for row in rows
    ]
    floor = noise_floor(counts, rollouts)
    least = smallest_gain(counts, run.settings.gate, gate_options(run))
    flaky = sum(row.flaky for row in rows)
    seen = (
        "the suite leaves no room for a gain that the gate could see"
        if least is None
        else f"the smallest gain that the gate sees four times in five is {100 * least:.1f} points"
    )
    reason = (
        f"two evaluations of {words.plural(rollouts, 'rollout')} a task differ by "
        f"{100 * floor:.1f} points (one standard deviation) from chance alone; {flaky} of "
        f"{words.plural(len(rows), 'task')} {'is' if flaky == 1 else 'are'} flaky; {seen}"
    )
    measured = any(n for _, n in counts)
    return SkillResult(
        path=skill,
        name=document.name,
        before=version,
        after=version,
        status="measured" if measured else "unmeasured",
        reason=reason if measured else f"{skill}: nothing could be measured",
        suite=comparison(rows),
        noise_floor=floor,
        smallest_gain=least,
        tasks=rows,
    )
