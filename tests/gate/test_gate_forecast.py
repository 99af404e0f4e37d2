"""Intervals and the noise floor of a suite."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.rates import interval, noise_floor


@st.composite
def counted(draw: st.DrawFn) -> list[tuple[float, int]]:
    ns = draw(st.lists(st.integers(0, 6), min_size=1, max_size=30))
    return [(draw(st.integers(0, n)), n) for n in ns]


@given(counted())
def test_interval_holds_the_observed_rate(counts: list[tuple[float, int]]) -> None:
    low, high = interval(counts)
    measured = [passed / n for passed, n in counts if n]
    assert 0 <= low <= high <= 1
    if measured:
        assert low - 1e-9 <= sum(measured) / len(measured) <= high + 1e-9


def test_interval_of_nothing_is_everything() -> None:
    assert interval([]) == (0.0, 1.0)
    assert interval([(0, 0)]) == (0.0, 1.0)


def test_interval_is_never_a_point_even_when_all_pass() -> None:
    low, high = interval([(3, 3)] * 10)
    assert low < 0.95
    assert high == 1.0


@each_row(("tasks", "rollouts"), [(10, 2), (10, 3), (40, 1), (40, 3), (40, 5)])
def test_interval_covers(tasks: int, rollouts: int) -> None:
    rng = random.Random(1)
    covered = 0
    trials = 1000
    for _ in range(trials):
        p = [rng.choice([0.02, 0.5, 0.9, 0.98]) for _ in range(tasks)]
        counts = [(sum(rng.random() < x for _ in range(rollouts)), rollouts) for x in p]
        low, high = interval(counts)
        covered += low <= sum(p) / tasks <= high
    assert covered / trials >= 0.93


def test_noise_floor_is_the_spread_between_two_evaluations() -> None:
    rng = random.Random(2)
    p = [rng.betavariate(1, 1) for _ in range(200)]
    counts = [(sum(rng.random() < x for _ in range(20)), 20) for x in p]
    expected = (2 * sum(x * (1 - x) for x in p) / 3) ** 0.5 / 200
    assert noise_floor(counts, 3) == pytest.approx(expected, rel=0.1)
    assert noise_floor([(3, 3)] * 5, 3) == 0
    assert noise_floor([], 3) == 0
