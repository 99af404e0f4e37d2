"""What a suite can show: the interval of a pass rate, its noise, the smallest gain a gate sees."""

from __future__ import annotations

import math
import random
from statistics import NormalDist
from typing import TYPE_CHECKING

from pytest_skillopt.gate.gate import run_gate
from pytest_skillopt.gate.gate_options import GateTask
from pytest_skillopt.gate.gates import make_gate
from pytest_skillopt.gate.verdict import CANDIDATE, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_skillopt.gate.gate_options import GateOptions
    from pytest_skillopt.gate.verdict import Draw


def interval(counts: Sequence[tuple[float, int]], confidence: float = 0.95) -> tuple[float, float]:
    """Interval for the suite's pass rate, the tasks given and the rollouts being the sample.

    Wilson's score interval for a stratified mean (Yan and Su 2010, doi:10.1198/sbr.2009.0067) in
    the form of an effective sample size (Korn and Graubard 1998): the size at which a simple
    proportion would have the variance of the suite mean. With one sample a task that variance
    cannot be estimated, and the binomial's is taken, which is never smaller (Hoeffding 1956).

    Args:
        counts: passes, or summed scores in [0, 1], and samples of each task.
        confidence: nominal coverage, in (0, 1).

    Returns:
        Low and high end, in [0, 1]; (0, 1) where nothing was measured.
    """
    measured = [(passed, n) for passed, n in counts if n]
    if not measured:
        return 0.0, 1.0
    rate = math.fsum(passed / n for passed, n in measured) / len(measured)
    shares = math.fsum(1 / n for _, n in measured) / len(measured) ** 2
    pooled = rate * (1 - rate)
    size = (pooled / _variance(measured, _CAUTION) if pooled else 1.0) / shares
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    middle = (rate + z * z / (2 * size)) / (1 + z * z / size)
    half = z / (1 + z * z / size) * math.sqrt(pooled / size + (z / (2 * size)) ** 2)
    return max(0.0, middle - half), min(1.0, middle + half)


_CAUTION = 3
"""Chosen by simulation: the least with which 95 % intervals cover 94 % from 10 tasks of 2 samples
on, in the worlds of ``benchmarks/gate.py``."""


def _variance(counts: Sequence[tuple[float, int]], pooled_weight: int) -> float:
    """Of one sample within its task, mean over the tasks.

    The unbiased estimate, with the binomial variance of the pooled rate as so many observations
    more: it decides alone where every task has one sample, and fades as there are more.
    """
    rate = math.fsum(passed / n for passed, n in counts) / len(counts)
    within = math.fsum(passed * (n - passed) / n for passed, n in counts)
    freedom = sum(n - 1 for _, n in counts)
    return (within + pooled_weight * rate * (1 - rate)) / (freedom + pooled_weight)


def noise_floor(counts: Sequence[tuple[float, int]], rollouts: int) -> float:
    """Standard deviation between two evaluations of one skill with ``rollouts`` samples a task.

    Args:
        counts: passes and samples of each task, as measured.
        rollouts: samples a task of the evaluations that are forecast, at least 1.

    Returns:
        In [0, 1], as a part of the pass rate; 0 where nothing was measured.
    """
    measured = [(passed, n) for passed, n in counts if n]
    if not measured:
        return 0.0
    return math.sqrt(2 * _variance(measured, 1) / (rollouts * len(measured)))


FIXED_RATE = 0.92
"""Pass rate of a task after an edit has fixed it, in the forecast."""
MOST_TASKS = 60
"""Size of the suite that is simulated in place of a larger one."""
REPLICATES = 60


def smallest_gain(
    counts: Sequence[tuple[float, int]],
    gate: str = "staged",
    options: GateOptions | None = None,
    *,
    power: float = 0.8,
    seed: int = 0,
) -> float | None:
    """Smallest gain of the pass rate that the gate would accept with probability ``power``.

    The gain is that of an edit which fixes one, two, three, ... of the tasks that mostly fail; the
    gate itself decides about simulated samples, in well under a second. Of a suite above 60 tasks a
    part is simulated, and the number to fix grows with the root of the size, as the noise does.

    Args:
        counts: passes (or summed scores) and samples of each task under the current skill.
        gate: name and ``options`` as in ``make_gate``.
        seed: the same seed gives the same forecast.

    Returns:
        In [0, 1]; None where even an edit that fixes all of them would be missed too often.
    """
    rng = random.Random(seed)
    # A quarter of a pass and of a failure more: three passes of three do not prove a rate of 1.
    rates = sorted((passed + 0.25) / (n + 0.5) for passed, n in counts)
    some = rates if len(rates) <= MOST_TASKS else sorted(rng.sample(rates, MOST_TASKS))
    weak = [rate for rate in some if rate < FIXED_RATE / 2]
    tried, reached = 0, 0.0
    while tried < len(weak):
        fixed = min(tried + 1 + tried // 2, len(weak))
        seen = _power(some, fixed, gate, options, rng)
        if seen >= power:
            # Between two numbers of tasks the power is taken as linear.
            needed = tried + (fixed - tried) * (power - reached) / (seen - reached) if tried else 1
            lift = FIXED_RATE - math.fsum(weak) / len(weak)
            return min(1.0, needed * lift * math.sqrt(len(some) / len(rates)) / len(some))
        tried, reached = fixed, seen
    return None


def _power(
    rates: Sequence[float], fixed: int, gate: str, options: GateOptions | None, rng: random.Random
) -> float:
    """Share of accepted edits that fix so many random ones of the tasks that mostly fail."""
    weak = [task for task, rate in enumerate(rates) if rate < FIXED_RATE / 2]
    accepted = 0
    for _ in range(REPLICATES):
        after = list(rates)
        for task in rng.sample(weak, fixed):
            after[task] = FIXED_RATE
        accepted += _decide(rates, after, gate, options, rng)
    return accepted / REPLICATES


def _decide(
    before: Sequence[float],
    after: Sequence[float],
    name: str,
    options: GateOptions | None,
    rng: random.Random,
) -> bool:
    def take(draws: Sequence[Draw]) -> Iterator[Sample]:
        for draw in draws:
            rates = after if draw.arm == CANDIDATE else before
            passed = rng.random() < rates[int(draw.task)]
            yield Sample(draw, passed, float(passed))

    tasks = [GateTask(f"{task:04d}") for task in range(len(before))]
    return run_gate(make_gate(name, tasks, options), take).accepted
