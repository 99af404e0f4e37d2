"""Compare each skill with itself: any difference is noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt import words
from pytest_skillopt.compare.comparison import GO_ON, take
from pytest_skillopt.rates import noise_floor
from pytest_skillopt.rollouts.sampler import Stop, StopRun
from pytest_skillopt.run.result import Arm
from pytest_skillopt.search.outcome import comparison, task_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt import Rollout
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult, Status
    from pytest_skillopt.tasks.task import SkillTask


def measure_noise(run: Run, skill: str) -> SkillResult:
    """Evaluate a skill twice, in the same version."""
    version = run.versions[skill]
    digest = run.sampler.add_version(skill, version)
    tasks = run.tasks_of(skill)
    rollouts = run.settings.rollouts
    of: dict[tuple[str, str], list[Rollout]] = {}
    for rollout in _both_evaluations(run, digest, tasks):
        of.setdefault((rollout.request.task, rollout.request.stream), []).append(rollout)
    rows = [task_row(task, of[task.id, "aa/1"], of[task.id, "aa/2"]) for task in tasks]
    arms = [(row.before, row.after or Arm()) for row in rows]
    counts = [(first.passed + second.passed, first.n + second.n) for first, second in arms]
    floor = noise_floor(counts, rollouts)
    flaky = sum(0 < passed < n for passed, n in counts)
    reason = (
        f"two evaluations of {words.plural(rollouts, 'rollout')} a task differ by "
        f"{100 * floor:.1f} points (one standard deviation) by chance; {flaky} of "
        f"{words.plural(len(rows), 'task')} {'is' if flaky == 1 else 'are'} flaky"
    )
    status: Status = "measured"
    if not any(n for _, n in counts):
        status, reason = "unmeasured", f"{skill}: nothing could be measured"
    return run.skill_result(
        skill,
        version,
        version,
        status=status,
        reason=reason,
        suite=comparison(rows),
        noise_floor=floor,
        tasks=rows,
    )


def _both_evaluations(run: Run, version: str, tasks: Sequence[SkillTask]) -> list[Rollout]:
    """Take the rollouts of two evaluations, or as many whole rounds as the caps pay for.

    What a cap ends within a round leaves the rounds before.
    """
    wanted, done = run.settings.rollouts, 0
    taken: list[Rollout] = []
    while more := run.limits.purse.affordable_rounds(2 * len(tasks), wanted - done):
        requests = []
        for index in range(done, done + more):
            for stream in ("aa/1", "aa/2"):
                requests += [run.sampler.request(task.id, version, stream, index) for task in tasks]
        try:
            taken += take(run, requests)
        except StopRun as stop:
            if stop.kind is not Stop.CAP or not done:
                raise
            run.notes.append(stop.reason)
            break
        done += more
    if done < wanted:
        paid = f"the caps paid for {words.plural(done, 'rollout')} of {wanted} a task"
        run.notes.append(f"{paid}; {GO_ON}")
    return taken
