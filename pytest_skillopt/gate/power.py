"""What a gate can see: the smallest gain of a suite that it would mostly accept."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from pytest_skillopt.gate.data import CANDIDATE, GateTask, Sample
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.gate.sequential import DefaultGate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_skillopt.gate.data import Draw
    from pytest_skillopt.gate.engine import Gate

FIXED_RATE = 0.92
"""Pass rate of a task after an edit has fixed it, in the forecast."""
MOST_TASKS = 60
"""Size of the suite that is simulated in place of a larger one."""
REPLICATES = 60


def smallest_gain(
    counts: Sequence[tuple[float, int]],
    open_gate: Callable[[Sequence[GateTask]], Gate] = DefaultGate,
    *,
    power: float = 0.8,
    seed: int = 0,
) -> float | None:
    """Smallest gain of the pass rate that the gate would accept with probability ``power``.

    The gain is that of an edit which fixes one, two, three, ... of the tasks that mostly fail; the
    gate itself decides about simulated samples. Of a suite above 60 tasks a part is simulated, and
    the number to fix grows with the root of the size, as the noise does.

    Args:
        counts: passes (or summed scores) and samples of each task under the current skill.

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
        seen = _power(some, fixed, open_gate, rng)
        if seen >= power:
            # Between two numbers of tasks the power is taken as linear.
            needed = tried + (fixed - tried) * (power - reached) / (seen - reached) if tried else 1
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
    """Share of accepted edits that fix so many random ones of the tasks that mostly fail."""
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
