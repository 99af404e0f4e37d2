"""The e-value of a task and of a suite, and the exact test."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.gate.data import Draw, Sample
from pytest_skillopt.gate.statistics import (
    Stratum,
    agreement,
    exact_test,
    log_e,
    permutation_test,
)

rates = st.floats(0.001, 0.999)


@st.composite
def arms(draw: st.DrawFn, most: int = 12, least: int = 0) -> tuple[int, int, int, int]:
    n = draw(st.integers(least, most))
    other = draw(st.integers(least, most))
    return draw(st.integers(0, n)), n, draw(st.integers(0, other)), other


def binomial(k: int, n: int, p: float) -> float:
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)


@given(st.integers(0, 8), st.integers(0, 8), rates)
def test_e_value_is_at_most_one_on_average_when_nothing_changed(n: int, m: int, p: float) -> None:
    mean = sum(
        binomial(k, n, p) * binomial(j, m, p) * math.exp(log_e(k, n, j, m))
        for k in range(n + 1)
        for j in range(m + 1)
    )
    assert mean <= 1 + 1e-9


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=2, max_size=3), rates, rates)
def test_e_value_of_scores_is_at_most_one_on_average(
    values: list[float], a: float, b: float
) -> None:
    weights = [a, b, 0.5][: len(values)]
    chances = [w / sum(weights) for w in weights]
    mean = 0.0
    for outcome in itertools.product(range(len(values)), repeat=5):
        chance = math.prod(chances[i] for i in outcome)
        scores = [values[i] for i in outcome]
        mean += chance * math.exp(log_e(sum(scores[:2]), 2, sum(scores[2:]), 3))
    assert mean <= 1 + 1e-9


def test_clean_flips_have_the_values_of_the_formula() -> None:
    values = [math.exp(log_e(k, k, 0, k + 2)) for k in range(1, 8)]
    assert [round(value) for value in values] == [5, 20, 72, 254, 898, 3192, 11416]


@given(arms(32, 1))
def test_evidence_rises_with_a_pass_of_the_better_arm_and_a_failure_of_the_worse(
    arm: tuple[int, int, int, int],
) -> None:
    """Wherever a task can be promising; far below, where neither rate fits, it need not."""
    better, n, worse, m = arm
    evidence = log_e(better, n, worse, m)
    if evidence >= math.log(0.3):
        assert better == n or log_e(better + 1, n, worse, m) > evidence
        assert worse == 0 or log_e(better, n, worse - 1, m) > evidence


def test_long_tapes_do_not_underflow() -> None:
    assert math.isfinite(log_e(0, 100_000, 100_000, 100_000))
    assert log_e(100_000, 100_000, 0, 100_000) > 100_000


@given(st.lists(arms(4), min_size=1, max_size=4))
def test_exact_test_equals_the_enumeration_of_all_arrangements(
    strata: list[tuple[int, int, int, int]],
) -> None:
    observed = sum(stratum[0] for stratum in strata)
    sums = {0: 1.0}
    for k, n, j, m in strata:
        after: dict[int, float] = {}
        cards = [1] * (k + j) + [0] * (n + m - k - j)
        hands = list(itertools.combinations(cards, n))
        for total, mass in sums.items():
            for hand in hands:
                after[total + sum(hand)] = after.get(total + sum(hand), 0) + mass / len(hands)
        sums = after
    expected = sum(mass for total, mass in sums.items() if total >= observed)
    assert exact_test(strata) == pytest.approx(expected, abs=1e-12)


def test_exact_test_copes_with_a_large_suite() -> None:
    strata = [(4, 8, 4, 8)] * 400
    assert 0.5 < exact_test(strata) < 0.53
    assert exact_test([(5, 8, 4, 8)] * 400) < 1e-9


def sample(passed: bool | None, score: float) -> Sample:
    return Sample(Draw("candidate", "t", "tape", 0), passed, score)


def test_metrics() -> None:
    assert [sample(True, 0.2).value(name) for name in ("hard", "soft", "mixed")] == [1, 0.2, 0.6]


@each_row("score", [math.nan, math.inf, -0.1, 1.1])
def test_scores_that_are_no_numbers_in_the_unit_interval_are_refused(score: float) -> None:
    with pytest.raises(ValueError, match="t: score"):
        sample(True, score).value("soft")


@given(st.lists(arms(4, 1), min_size=1, max_size=4), st.floats(0.1, 1.0))
def test_accidents_of_wording_never_make_a_p_value_smaller(
    counts: list[tuple[int, int, int, int]], wording: float
) -> None:
    strata = [
        Stratum(2, (1,) * k + (0,) * (n - k), (1,) * min(j, n) + (0,) * max(0, n - j))
        for k, n, j, _ in counts
    ]
    assert permutation_test(strata, wording) >= permutation_test(strata)


def test_many_samples_of_one_task_are_one_piece_of_evidence_beyond_accidents_of_wording() -> None:
    def p_value(tasks: int, n: int, wording: float) -> float:
        after = (1,) * (3 * n // 4) + (0,) * (n // 4)
        before = (1,) * (n // 2) + (0,) * (n // 2)
        return permutation_test([Stratum(1, after, before)] * tasks, wording)

    assert p_value(1, 32, 0.0) < 0.05 < p_value(1, 32, 0.8)
    assert p_value(8, 32, 0.8) < 0.01


def test_scores_are_permuted_as_passes_are() -> None:
    better = Stratum(1, (9, 8, 10), (2, 3, 1))
    assert permutation_test([better], scale=10) == pytest.approx(1 / math.comb(6, 3))
    assert permutation_test([Stratum(3, (5,), (5,))], scale=10) == 1.0


@each_row("rate", [0.3, 0.5, 0.75])
def test_agreement_is_the_mean_over_a_rate_that_is_not_certain(rate: float) -> None:
    """Compare the formula with rates on a grid, weighted by the density of their Beta."""
    steps = [(i + 0.5) / 20_000 for i in range(20_000)]
    weights = [x ** (2 * rate - 1) * (1 - x) ** (2 * (1 - rate) - 1) for x in steps]
    for n in (2, 5):
        means = sum(w * (x**n + (1 - x) ** n) for x, w in zip(steps, weights, strict=True))
        assert agreement(rate, n) == pytest.approx(means / sum(weights), abs=0.01)
    assert agreement(rate, 0) == agreement(rate, 1) == 1.0
