"""The chance to accept what changes nothing stays at alpha, also where models and servers mislead.

Few trials each, with bounds that a broken rule misses by far; ``benchmarks/verdict.py`` measures
the same on many.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import pytest
from gate_draws import luck, options_with
from tables import each_row

from pytest_skillopt.gate.data import CANDIDATE, GateTask, Sample, Verdict
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.gate.sequential import REPEATS
from pytest_skillopt.search.extensions import make_gate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_skillopt.gate.data import Draw

TASKS = 12
TRIALS = 40


def judge(roll: Callable[[Draw], bool], decision: int = 0, **told: Any) -> Verdict:
    def take(draws: Sequence[Draw]) -> list[Sample]:
        return [Sample(draw, passed, float(passed)) for draw in draws for passed in [roll(draw)]]

    tasks = [GateTask(f"{i:02d}") for i in range(TASKS)]
    options = options_with(**{"budget": 120, **told})
    return run_gate(make_gate("sequential", tasks, options, decision=decision), take)


def accepted(world: Callable[[int], Callable[[Draw], bool]], **told: Any) -> float:
    verdicts = [judge(world(trial), trial, **told) for trial in range(TRIALS)]
    return sum(verdict.accepted for verdict in verdicts) / TRIALS


def lifts(*tasks: int) -> tuple[tuple[str, float], ...]:
    return tuple((f"{i:02d}", 0.4 if i in tasks else 0.0) for i in range(TASKS))


def rates(trial: int) -> dict[str, float]:
    return {f"{i:02d}": 0.1 + 0.8 * luck(f"{trial}/{i}") for i in range(TASKS)}


def expected(values: Sequence[float]) -> tuple[tuple[str, float], ...]:
    return tuple((f"{i:02d}", value) for i, value in enumerate(values))


SEARCHED = pytest.mark.parametrize("lift", [None, lifts(3), lifts(*range(TASKS))])
"""Without a search, and after one that is wrong about one task, and about all."""


@SEARCHED
def test_an_edit_that_changes_nothing_is_refused(
    lift: tuple[tuple[str, float], ...] | None,
) -> None:
    def world(trial: int) -> Callable[[Draw], bool]:
        rate = rates(trial)
        return lambda d: luck(f"{trial}/{d.arm}/{d.task}/{d.stream}/{d.index}") < rate[d.task]

    assert accepted(world, lift=lift) <= 0.075


@SEARCHED
def test_rates_that_drift_while_the_gate_samples_are_no_change(
    lift: tuple[tuple[str, float], ...] | None,
) -> None:
    """The server gets better with every request, under both skills."""

    def world(trial: int) -> Callable[[Draw], bool]:
        rate = rates(trial)
        requests = 0

        def roll(draw: Draw) -> bool:
            nonlocal requests
            requests += 1
            key = f"{trial}/{draw.arm}/{draw.task}/{draw.stream}/{draw.index}"
            return luck(key) < rate[draw.task] + 0.4 * math.tanh(requests / 60 - 1)

        return roll

    assert accepted(world, lift=lift) <= 0.125


@each_row("known", [(), tuple(f"{i:02d}" for i in range(TASKS))])
def test_a_server_that_repeats_itself_after_a_search(known: tuple[str, ...]) -> None:
    """Each text has one outcome for each task: luck of this text, whatever one samples."""

    def world(trial: int) -> Callable[[Draw], bool]:
        rate = rates(trial)
        return lambda d: luck(f"{trial}/{d.arm}/{d.task}") < rate[d.task]

    told: dict[str, Any] = {"lift": lifts(*range(TASKS)), "repeats": True, "known": known}
    assert accepted(world, **told) <= 0.1
    if known:
        assert accepted(world, **told) == 0
    assert judge(world(0), **told).reason.endswith(REPEATS)


def test_a_server_that_repeats_itself_is_noticed() -> None:
    def world(trial: int) -> Callable[[Draw], bool]:
        return lambda d: luck(f"{trial}/{d.arm}/{d.task}") < 0.5

    verdicts = [judge(world(trial), trial, budget=None) for trial in range(20)]
    assert sum(verdict.accepted for verdict in verdicts) <= 2
    assert sum(verdict.reason.endswith(REPEATS) for verdict in verdicts) >= 18


def test_a_server_that_repeats_itself_is_noticed_by_the_rates_that_a_search_expected() -> None:
    """Every task passes under the one text and under the other, though at .5 by the search."""
    steady = [0.5] * TASKS
    told: dict[str, Any] = {"lift": lifts(0), "rates": expected(steady)}
    assert judge(lambda draw: True, **told).reason.endswith(REPEATS)
    sound: dict[str, Any] = {"lift": lifts(0), "rates": expected([0.95] * TASKS)}
    assert not judge(lambda draw: True, **sound).reason.endswith(REPEATS)
    disagreed = {**told, "agreement": math.inf}
    assert not judge(lambda draw: True, **disagreed).reason.endswith(REPEATS)


def test_a_server_that_draws_each_reply_is_not_said_to_repeat_itself() -> None:
    def world(trial: int) -> Callable[[Draw], bool]:
        return lambda d: luck(f"{trial}/{d.arm}/{d.task}/{d.stream}/{d.index}") < 0.5

    told: dict[str, Any] = {"lift": lifts(1), "rates": expected([0.5] * TASKS)}
    verdicts = [judge(world(trial), trial, **told) for trial in range(20)]
    assert not any(verdict.reason.endswith(REPEATS) for verdict in verdicts)


def test_bets_alone_decide_if_a_server_repeats_what_the_search_has_seen() -> None:
    known = tuple(f"{i:02d}" for i in range(TASKS))
    told: dict[str, Any] = {"lift": lifts(1, 2), "repeats": True, "known": known}

    def fixed(draw: Draw) -> bool:
        return draw.arm == CANDIDATE or draw.task not in ("01", "02")

    assert not judge(fixed, **told, log_e=math.log(19)).accepted
    assert judge(fixed, **told, log_e=math.log(21)).accepted

    def broken(draw: Draw) -> bool:
        return not fixed(draw)

    assert not judge(broken, **told, log_e=math.log(21)).accepted


@each_row("deviation", [0.4, 0.8])
@each_row("lift", [lifts(3), lifts(1, 5, 8), lifts(*range(TASKS))])
def test_accidents_of_wording_are_no_change(
    deviation: float, lift: tuple[tuple[str, float], ...]
) -> None:
    """Every text moves every task a little."""

    def world(trial: int) -> Callable[[Draw], bool]:
        rng = random.Random(f"{trial}/{deviation}")
        rate = {}
        for task, base in rates(trial).items():
            for arm in ("candidate", "incumbent"):
                odds = math.log(base / (1 - base)) + rng.gauss(0, deviation)
                rate[arm, task] = 1 / (1 + math.exp(-odds))
        return lambda d: (
            luck(f"{trial}/{d.arm}/{d.task}/{d.stream}/{d.index}") < rate[d.arm, d.task]
        )

    assert accepted(world, lift=lift) <= 0.05 + 0.15 * (deviation > 0.5)
