"""Planning with caps, and the figures of a suite."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_skillopt.model.limits import Caps
from pytest_skillopt.model.types import Usage
from pytest_skillopt.search.budget import Budget, OutOfBudget, Purpose
from pytest_skillopt.search.outcome import suite_rate
from pytest_skillopt.suite.rollouts import Rollout, RolloutRequest

if TYPE_CHECKING:
    from collections.abc import Sequence


USAGE = Usage(calls=2, input_tokens=100, cost=0.01)


def rollouts(count: int) -> list[Rollout]:
    return [
        Rollout(RolloutRequest("t", "s", "k", "v", "m", "train", i), "passed", usage=USAGE)
        for i in range(count)
    ]


def test_without_a_cap_everything_is_covered() -> None:
    budget = Budget(Caps())
    assert budget.left() is None
    assert budget.covers(10**9)


@pytest.mark.parametrize(
    ("caps", "left"),
    [
        (Caps(rollouts=100), 100 - 10 - 20),
        (Caps(calls=100), 50 - 10 - 20),
        (Caps(tokens=5000), 50 - 10 - 20),
        (Caps(cost=0.5), 50 - 10 - 20),
        (Caps(calls=100, rollouts=35), 35 - 10 - 20),
        (Caps(rollouts=25), 0),
    ],
)
def test_every_cap_is_planned_with_at_the_price_seen(caps: Caps, left: int) -> None:
    now = 0.0
    budget = Budget(caps, clock=lambda: now)
    budget.hold(Purpose.FINAL, 20)
    budget.took(rollouts(10))
    now = 100.0
    assert budget.left() == left
    budget.require(left)
    with pytest.raises(
        OutOfBudget, match="10 samples; 20 more are reserved for the final comparison"
    ):
        budget.require(left + 1)


def test_optimizer_calls_eat_into_the_cap_on_calls() -> None:
    budget = Budget(Caps(calls=100))
    budget.took(rollouts(10))
    budget.called(Usage(calls=15, cached=5))
    assert budget.left() == (100 - 20 - 20) // 2


@pytest.mark.parametrize("caps", [Caps(calls=100), Caps(tokens=5000), Caps(cost=0.5)])
def test_a_sample_from_the_cache_counts_at_what_it_took(caps: Caps) -> None:
    paid, kept = Budget(caps), Budget(caps)
    paid.took(rollouts(10))
    kept.took([replace(rollout, usage=USAGE.again()) for rollout in rollouts(10)])
    assert kept.left() == paid.left() == 40
    paid.called(USAGE)
    kept.called(USAGE.again())
    assert kept.left() == paid.left() == 39


def test_a_sample_taken_twice_counts_once() -> None:
    budget = Budget(Caps(rollouts=100))
    for _ in range(2):
        budget.took(rollouts(10))
    assert budget.samples == 10


def test_what_is_held_back_comes_back() -> None:
    budget = Budget(Caps(), search_samples=100)
    budget.hold(Purpose.ABLATION, 30)
    assert budget.left() == 70
    budget.release()
    assert budget.left() is None


counts = st.lists(st.integers(1, 9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))


@given(counts)
def test_a_rate_lies_in_its_interval(tasks: Sequence[tuple[int, int]]) -> None:
    rate = suite_rate(tasks)
    if not tasks:
        assert rate is None
        return
    assert rate is not None
    assert 0 <= rate.low <= rate.rate <= rate.high <= 1
    assert rate.low < rate.high
    assert rate.rate == pytest.approx(sum(p / n for p, n in tasks) / len(tasks))
    twice = suite_rate([(2 * p, 2 * n) for p, n in tasks])
    assert twice is not None
    assert twice.high - twice.low <= rate.high - rate.low + 0.05


def test_tasks_without_a_measurement_do_not_count() -> None:
    rate = suite_rate([(0, 0), (3, 3)])
    assert rate is not None
    assert (rate.rate, rate.tasks, rate.samples) == (1.0, 1, 3)


def test_time_is_planned_with_what_rollouts_take_over_the_workers() -> None:
    now = 0.0
    budget = Budget(Caps(seconds=300), at_once=lambda: 8, clock=lambda: now)
    budget.hold(Purpose.FINAL, 100)
    assert budget.left() is None, "nothing is known yet"
    started = [replace(r, duration=20.0) for r in rollouts(8)]
    budget.took([*started, *(replace(r, duration=1.0) for r in rollouts(88)[8:])])
    now = 100.0
    assert budget.left() == int(200 / (1.25 / 8)) - 100, "8 were slow once, for their workers"
    now = 299.0
    assert budget.left() == 0
    with pytest.raises(OutOfBudget, match="skillopt_max_time leaves no more"):
        budget.require(1)
