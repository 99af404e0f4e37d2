"""Bets: an e-value whatever the model says and whenever one stops."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.gate.bets import STAKES, Bets

chances = st.floats(0.01, 0.99)


@given(st.lists(st.tuples(chances, chances), min_size=1, max_size=4), st.floats(0.05, 0.95))
def test_mean_of_e_is_one_if_the_outcome_ignores_the_document(
    predictions: list[tuple[float, float]], rate: float
) -> None:
    """Sum over all draws of a coin and all outcomes: the model's predictions may be anything."""
    total = 0.0
    for draws in itertools.product((0, 1), repeat=len(predictions)):
        for outcomes in itertools.product((False, True), repeat=len(predictions)):
            bets = Bets()
            chance = 1.0
            for of_both, drawn, passed in zip(predictions, draws, outcomes, strict=True):
                bets.place(of_both[drawn], statistics.fmean(of_both), passed)
                chance *= 0.5 * (rate if passed else 1 - rate)
            total += chance * bets.e_value
    assert total == pytest.approx(1.0)


def test_e_is_a_quarter_of_the_stake_and_the_wealth_of_gamblers_who_share() -> None:
    bets = Bets()
    bets.place(0.75, 0.5, True)
    bets.place(0.25, 0.5, False)
    wealth = [1.0] * len(STAKES)
    for _ in range(2):
        even = statistics.fmean(wealth)
        wealth = [0.95 * own + 0.05 * even for own in wealth]
        wealth = [own * (1 + f / 2) for own, f in zip(wealth, STAKES, strict=True)]
    assert bets.e_value == pytest.approx(0.25 + 0.75 * statistics.fmean(wealth))
    assert bets.log_e == pytest.approx(math.log(bets.e_value))


def test_gains_after_losses_count() -> None:
    """The model knew nothing for twenty samples: who had staked all has next to nothing left."""
    bets = Bets()
    for passed in [False] * 20 + [True] * 20:
        bets.place(0.75, 0.5, passed)
    assert bets.e_value > 10


def test_stopping_at_the_highest_e_reaches_20_in_at_most_5_percent_of_nulls() -> None:
    """Rates drift, the model chases its luck, and one stops at the first e-value of 20."""
    rng = random.Random(1)
    reached = 0
    for _ in range(400):
        bets = Bets()
        believed = 0.5
        rate = rng.random()
        for _ in range(60):
            rate = min(1.0, max(0.0, rate + rng.gauss(0, 0.1)))
            drawn = rng.random() < 0.5
            passed = rng.random() < rate
            predictions = (0.5, believed)
            bets.place(predictions[drawn], statistics.fmean(predictions), passed)
            believed = min(0.95, max(0.05, believed + (0.1 if passed == drawn else -0.1)))
            if bets.e_value >= 20:
                reached += 1
                break
    assert reached <= 0.05 * 400


def test_certain_losses_leave_a_quarter_and_endless_gains_stay_finite() -> None:
    lost = Bets()
    won = Bets()
    for _ in range(5000):
        lost.place(0.99, 0.5, False)
        won.place(0.99, 0.5, True)
    assert lost.e_value == pytest.approx(0.25)
    assert math.isfinite(won.log_e)


@each_row(("drawn", "mean"), [(0.0, 0.5), (0.5, 1.0), (math.nan, 0.5)])
def test_bet_needs_probabilities(drawn: float, mean: float) -> None:
    with pytest.raises(ValueError, match="needs probabilities"):
        Bets().place(drawn, mean, True)
