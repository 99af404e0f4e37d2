"""Compare each skill with itself: any difference is noise."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import TYPE_CHECKING

from pytest_skillopt.gate.data import CANDIDATE, GateTask, Sample
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.gate.sequential import DefaultGate
from pytest_skillopt.gate.statistics import noise_floor
from pytest_skillopt.modes.measure import joined_reasons, of_one_version
from pytest_skillopt.report import words
from pytest_skillopt.run.result import Arm
from pytest_skillopt.search.extensions import configured_gate
from pytest_skillopt.search.outcome import comparison, task_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_skillopt import Gate, Result, Rollout
    from pytest_skillopt.gate.data import Draw
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult, Status

FIXED_RATE = 0.92
"""Pass rate of a task after an edit has fixed it, in the forecast."""
POWER = 0.8
"""Wanted probability of acceptance."""
MOST_TASKS = 60
"""Size of the part that is simulated of a larger suite."""
REPLICATES = 60
"""Simulated decisions for each number of fixed tasks."""


def aa(run: Run, display: Display) -> Result:
    """Evaluate each skill twice, in the same version: any difference is noise."""
    display.begin("comparison with itself")
    skills = [_measure(run, skill) for skill in run.documents]
    unmeasured = any(skill.status == "unmeasured" for skill in skills)
    status: Status = "unmeasured" if unmeasured else "measured"
    return run.result(status, joined_reasons(skills), skills)


def _measure(run: Run, skill: str) -> SkillResult:
    document = run.documents[skill]
    version = run.sampler.add_version(skill, document.packed)
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
    of: dict[tuple[str, str], list[Rollout]] = {}
    for rollout in taken:
        of.setdefault((rollout.request.task, rollout.request.stream), []).append(rollout)
    rows = [task_row(task, of[task.id, "aa/1"], of[task.id, "aa/2"]) for task in tasks]
    arms = [(row.before, row.after or Arm()) for row in rows]
    counts = [(first.passed + second.passed, first.n + second.n) for first, second in arms]
    floor = noise_floor(counts, rollouts)
    least = smallest_gain(counts, partial(configured_gate, run.settings))
    flaky = sum(row.flaky for row in rows)
    seen = (
        "the suite leaves no room for a gain that the gate could detect"
        if least is None
        else f"the smallest gain that the gate detects in 80 % of cases is {100 * least:.1f} points"
    )
    reason = (
        f"two evaluations of {words.plural(rollouts, 'rollout')} a task differ by "
        f"{100 * floor:.1f} points (one standard deviation) by chance; {flaky} of "
        f"{words.plural(len(rows), 'task')} {'is' if flaky == 1 else 'are'} flaky; {seen}"
    )
    measured = any(n for _, n in counts)
    return of_one_version(
        skill,
        document,
        "measured" if measured else "unmeasured",
        reason if measured else f"{skill}: nothing could be measured",
        suite=comparison(rows),
        noise_floor=floor,
        smallest_gain=least,
        tasks=rows,
    )


def smallest_gain(
    counts: Sequence[tuple[float, int]],
    open_gate: Callable[[Sequence[GateTask]], Gate] = DefaultGate,
) -> float | None:
    """Estimate the smallest gain that the gate would accept with probability ``POWER``.

    The gate decides about simulated samples of edits that fix one, two, three, ... of the tasks
    that mostly fail. Only a part of a suite above 60 tasks is simulated; the number of tasks to fix
    grows with the square root of the size, as the noise does.

    Args:
        counts: passes (or summed scores) and samples of each task under the current skill.
        open_gate: creates the gate for a suite.

    Returns:
        Gain of the pass rate in [0, 1]; None if the gate would accept even an edit that fixes all
        of them too rarely.
    """
    rng = random.Random(0)
    # Add a quarter of a pass and of a failure: three passes of three do not prove a rate of 1.
    rates = sorted((passed + 0.25) / (n + 0.5) for passed, n in counts)
    some = rates if len(rates) <= MOST_TASKS else sorted(rng.sample(rates, MOST_TASKS))
    weak = [rate for rate in some if rate < FIXED_RATE / 2]
    tried, reached = 0, 0.0
    while tried < len(weak):
        fixed = min(tried + 1 + tried // 2, len(weak))
        seen = _power(some, fixed, open_gate, rng)
        if seen >= POWER:
            # Interpolate the power between two numbers of tasks.
            needed = tried + (fixed - tried) * (POWER - reached) / (seen - reached) if tried else 1
            lift = FIXED_RATE - math.fsum(weak) / len(weak)
            return min(1.0, needed * lift * math.sqrt(len(some) / len(rates)) / len(some))
        tried, reached = fixed, seen
    return None


def _power(
    rates: Sequence[float],
    fixed: int,
    open_gate: Callable[[Sequence[GateTask]], Gate],
    rng: random.Random,
) -> float:
    """Return the share of accepted edits that fix random tasks among those that mostly fail."""
    weak = [task for task, rate in enumerate(rates) if rate < FIXED_RATE / 2]
    tasks = [GateTask(f"{task:04d}") for task in range(len(rates))]

    def take(draws: Sequence[Draw]) -> Iterator[Sample]:
        for draw in draws:
            lifted = draw.arm == CANDIDATE and int(draw.task) in lifts
            passed = rng.random() < (FIXED_RATE if lifted else rates[int(draw.task)])
            yield Sample(draw, passed, float(passed))

    accepted = 0
    for _ in range(REPLICATES):
        lifts = set(rng.sample(weak, fixed))
        accepted += run_gate(open_gate(tasks), take).accepted
    return accepted / REPLICATES
