"""The purse: what may still be spent under the five caps, and why."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.model.purse import FIRST_LOOK, Amounts, Purse, Usual
from pytest_skillopt.model.types import Usage

USAGE = Usage(calls=2, input_tokens=100, cost=0.01)


def filled(caps: Amounts, count: int = 10, used: Usage = USAGE) -> Purse:
    purse = Purse(caps, clock=lambda: 0.0)
    for index in range(count):
        purse.count_sample(str(index), used, 1.0)
    return purse


def test_without_a_cap_everything_can_be_paid() -> None:
    purse = filled(Amounts())
    purse.reserve("the end", 100)
    assert purse.affordable() == purse.affordable_calls() == purse.total() == math.inf
    assert purse.refusal(10**9) == ""
    assert purse.explain() == "no cap is set"


@each_row(
    ("caps", "total"),
    [
        (Amounts(rollouts=100), 100),
        (Amounts(calls=102), 50),
        (Amounts(tokens=5100), 50),
        (Amounts(cost=0.51), 50),
        (Amounts(seconds=125), 100),
        (Amounts(calls=102, rollouts=35), 35),
    ],
)
def test_each_cap_is_worth_rollouts_at_the_prices_seen(caps: Amounts, total: int) -> None:
    """One rollout less than the caps pay: the last call in flight needs its reserve."""
    purse = filled(caps)
    purse.reserve("the end", 20)
    assert purse.total() - total in (0, 10)  # no time has passed by the clock of this test
    left = purse.affordable()
    assert left == purse.total() - 10 - 20
    assert purse.refusal(left) == ""
    assert "after 10 rollouts; 20 more are reserved for the end" in purse.refusal(left + 1)


def test_calls_of_the_optimizer_are_paid_from_the_same_purse() -> None:
    purse = filled(Amounts(calls=102))
    before = purse.affordable()
    purse.count_calls(Usage(calls=15, cached=5))
    assert purse.affordable() == before - 10
    assert purse.affordable_calls() == 102 - 20 - 20
    purse.reserve("the end", 5)
    assert purse.affordable_calls() == 102 - 20 - 20 - 10
    assert purse.affordable_calls(0.5) == (102 - 10) / 2 - 20
    purse.count_calls(Usage(calls=26))
    assert purse.affordable_calls(0.5) == 0, "half of it, beside 10 rollouts of two calls"
    assert purse.affordable() == (102 - 20 - 46) / 2 - 5 - 1
    assert filled(Amounts(rollouts=20)).affordable_calls() == math.inf


@each_row("caps", [Amounts(calls=100), Amounts(tokens=5000), Amounts(cost=0.5)])
def test_a_sample_from_the_cache_counts_at_what_it_took(caps: Amounts) -> None:
    paid = filled(caps)
    kept = filled(caps, used=USAGE.again())
    assert kept.affordable() == paid.affordable() == 39
    for purse, used in ((paid, USAGE), (kept, USAGE.again())):
        purse.count_calls(used)
        assert purse.affordable() == 38


def test_a_sample_taken_twice_counts_once() -> None:
    purse = Purse(Amounts(rollouts=100))
    for _ in range(2):
        purse.count_sample("the same", USAGE, 1.0)
    assert purse.samples == 1


def test_prices_that_vary_are_taken_with_their_uncertainty() -> None:
    even = Purse(Amounts(cost=1.0))
    uneven = Purse(Amounts(cost=1.0))
    for index in range(10):
        even.count_sample(str(index), replace(USAGE, cost=0.02), 1.0)
        uneven.count_sample(str(index), replace(USAGE, cost=0.04 * (index % 2)), 1.0)
    assert even.affordable() == 39
    assert uneven.affordable() < 30


def test_a_reserve_that_is_a_part_follows_the_price() -> None:
    purse = Purse(Amounts(cost=1.5), usual=Usual(Amounts(1, 1, 2000, 0.1, 10)))
    purse.reserve("the end", lambda total: math.ceil(0.3 * total))
    assert purse.reserved() == {"the end": 5}
    for index in range(10):
        purse.count_sample(str(index), USAGE, 1.0)
    assert purse.reserved() == {"the end": 45}
    purse.reserve("the end", 0)
    assert purse.reserved() == {}


def test_an_assumed_price_sizes_the_first_round_and_forbids_none() -> None:
    dear = Usual(Amounts(1, 1, 2000, 1.0, 10))
    purse = Purse(Amounts(cost=1.5), usual=dear)
    purse.reserve("the end", 20)
    assert (purse.total(), purse.affordable(), purse.is_guessed) == (1, FIRST_LOOK, True)
    assert Purse(Amounts(rollouts=5), usual=dear).affordable() == 5
    cheap = Purse(Amounts(cost=1.5), usual=Usual(Amounts(1, 1, 2000, 0.01, 10)))
    assert (cheap.total(), cheap.affordable()) == (150, 150)


def test_what_is_reserved_for_the_search_itself_comes_back() -> None:
    purse = Purse()
    purse.allow(100)
    purse.reserve("leaving out", 30)
    assert (purse.affordable(), purse.is_bound_by_cap) == (70, False)
    assert "the search has had its 0 rollouts" in purse.refusal(71)
    purse.release()
    assert purse.affordable() == math.inf


def test_a_search_loses_nothing_of_its_limit_to_a_part_that_grows_as_prices_fall() -> None:
    purse = Purse(Amounts(cost=1.0), usual=Usual(Amounts(1, 1, 2000, 0.01, 10)))
    purse.reserve("the end", lambda total: total / 2)
    purse.allow(40)
    assert purse.affordable() == 40
    purse.count_sample("first", Usage(calls=1, cost=0.001), 1.0)
    assert purse.reserved()["the end"] > 400
    assert (purse.affordable(), purse.is_bound_by_cap) == (39, False)


def test_time_is_what_rollouts_take_over_the_workers() -> None:
    now = 0.0
    purse = Purse(Amounts(seconds=300), at_once=lambda: 8, clock=lambda: now)
    purse.reserve("the end", 100)
    for index in range(88):
        purse.count_sample(str(index), USAGE, 20.0 if index < 8 else 1.0)
    now = 100.0
    assert purse.affordable() == int(200 / (1.25 / 8)) - 100, "8 were slow once, to start"
    now = 299.0
    assert purse.affordable() == 0
    assert "skillopt_max_time leaves no more" in purse.refusal(1)


def test_it_explains_itself() -> None:
    purse = filled(Amounts(rollouts=1000, cost=1.5))
    purse.reserve("the final comparison", 45)
    purse.reserve("the test split", 36)
    assert purse.explain() == (
        "skillopt_max_cost = 1.50 pays for about 149 rollouts, at $0.01 each (as in 10 of them); "
        "10 were taken; 45 are reserved for the final comparison; 36 are reserved for the test "
        "split; 58 are left"
    )
    assert Purse(Amounts(rollouts=20)).explain() == (
        "skillopt_max_rollouts = 20 pays for 20 rollouts; 20 are left"
    )
    assert "1 model call each (an assumption)" in Purse(Amounts(calls=7)).explain()


# Shares of a purse.


def test_what_the_first_skill_leaves_goes_to_the_second() -> None:
    whole = Purse(Amounts(rollouts=100, tokens=7000, cost=3.0))
    first = whole.share(2)
    assert first.caps == Amounts(rollouts=50, tokens=3500, cost=1.5)
    for index in range(20):
        first.count_sample(str(index), USAGE, 1.0)
    assert whole.samples == 20
    second = whole.share(1)
    assert second.caps == pytest.approx(Amounts(rollouts=80, tokens=5000, cost=2.8))
    assert second.affordable() == 50, "the price is known from the first"


@each_row("parts", [1, 3])
def test_a_cap_that_is_used_up_is_not_turned_off(parts: int) -> None:
    purse = Purse(Amounts(10, 10, 10, 0.01, 1.0))
    for index in range(20):
        purse.count_sample(str(index), USAGE, 1.0)
    left = purse.share(parts)
    assert left.caps[:3] == (1, 1, 1)
    assert 0 < left.caps.cost < 1e-6
    assert left.affordable() == 0


def test_what_a_failed_attempt_has_cost_is_not_there_for_a_share() -> None:
    whole = Purse(Amounts(calls=100))
    share = whole.share(1)
    share.count_sample("a", Usage(calls=1), 1.0)
    whole.count_payment(Usage(calls=42))
    assert share.affordable() == 100 - 42 - 1
    assert whole.share(2).caps.calls == 29


def test_a_session_that_takes_all_from_the_journal_has_paid_for_its_probes_only() -> None:
    first = filled(Amounts(calls=100))
    continued = filled(Amounts(calls=100))
    first.count_payment(Usage(calls=20))
    for purse in (first, continued):
        purse.count_probes(Usage(calls=2))
        purse.count_payment(Usage(calls=2))
    assert first.affordable() == continued.affordable() == (100 - 22 - 2) // 2


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 900)), max_size=30),
    st.integers(1, 200),
    st.floats(0, 300),
)
def test_what_is_affordable_is_paid_by_every_cap(
    rollouts: list[tuple[int, int]], cap: int, held: float
) -> None:
    caps = Amounts(rollouts=cap, calls=cap * 5, tokens=cap * 400, cost=cap / 10)
    purse = Purse(caps, clock=lambda: 0.0)
    purse.reserve("the end", held)
    for index, (calls, tokens) in enumerate(rollouts):
        purse.count_sample(str(index), Usage(calls, input_tokens=tokens, cost=tokens / 1e4), 1.0)
    left = purse.affordable()
    if not rollouts:
        assert left <= max(FIRST_LOOK, purse.total())
        return
    assert left == 0 or left + held <= purse.total() - purse.samples
    needed = purse.taken.plus(purse.price.times(left))
    if left:
        assert all(
            amount <= limit + 1e-6 for amount, limit in zip(needed, caps, strict=True) if limit
        )
