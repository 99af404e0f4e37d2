from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_skillopt.model.limits import CallEstimate, Meter
from pytest_skillopt.model.types import CapReached, ModelFault, Price, Usage
from pytest_skillopt.settings import Settings

ACCOUNT = ("target", "rollout", "t.py::test_a")
FREE = Usage()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def limits(clock: Clock | None = None, **bounds: Any) -> Meter:
    return Meter(Settings(**bounds), clock=clock or Clock())


def go(lim: Meter, call: str, tokens: int = 10, cost: float = 0.0, provider: str = "p") -> float:
    estimate = CallEstimate(provider, "target", tokens - 1, 1, Price(0.0, cost * 1e6))
    return lim.ask(call, estimate)


def paid(tokens: int = 10, cost: float | None = None) -> Usage:
    return Usage(1, 0, max(0, tokens - 1), min(1, tokens), cost)


def test_calls_in_flight_are_bounded_for_each_provider() -> None:
    lim = limits(max_in_flight=2)
    assert go(lim, "a") == go(lim, "b") == 0
    assert go(lim, "c") > 0
    assert go(lim, "d", provider="other") == 0
    lim.done("a", paid(), ACCOUNT)
    assert go(lim, "c") == 0


def test_a_pause_holds_for_all_calls_to_that_provider() -> None:
    clock = Clock()
    lim = limits(clock)
    go(lim, "a")
    lim.done("a", FREE, ACCOUNT, retry_after=20.0)
    assert go(lim, "b") == pytest.approx(20.0)
    assert go(lim, "c", provider="other") == 0
    clock.now += 19
    assert go(lim, "b") == pytest.approx(1.0)


def test_a_shorter_pause_does_not_end_a_longer_one() -> None:
    lim = limits()
    go(lim, "a")
    go(lim, "b")
    lim.done("a", FREE, ACCOUNT, retry_after=20.0)
    lim.done("b", FREE, ACCOUNT, retry_after=1.0)
    assert go(lim, "c") == pytest.approx(20.0)


@given(
    st.lists(st.tuples(st.integers(2, 400), st.floats(0, 1)), min_size=1, max_size=60),
    st.integers(1, 2000),
)
def test_the_cap_of_tokens_is_never_passed_when_estimates_are_bounds(
    calls: list[tuple[int, float]], cap: int
) -> None:
    lim = limits(max_tokens=cap)
    flying: list[tuple[str, int]] = []
    for index, (estimate, share) in enumerate(calls):
        try:
            if go(lim, str(index), estimate) == 0:
                flying.append((str(index), round(estimate * share)))
        except CapReached:
            pass
        if len(flying) > 3:
            name, used = flying.pop(0)
            lim.done(name, paid(used), ACCOUNT)
    for name, used in flying:
        lim.done(name, paid(used), ACCOUNT)
    assert lim.spent.input_tokens + lim.spent.output_tokens <= cap


def test_a_call_waits_for_estimates_in_flight_before_a_cap_is_declared() -> None:
    lim = limits(max_calls=1)
    assert go(lim, "a") == 0
    assert go(lim, "b") > 0
    lim.done("a", FREE, ACCOUNT)
    assert go(lim, "b") == 0
    lim.done("b", paid(), ACCOUNT)
    with pytest.raises(CapReached, match=r"cap of 1 model calls is reached \(1 used\)"):
        go(lim, "c")


def test_the_cap_in_money_counts_what_is_in_flight() -> None:
    lim = limits(max_cost=1.0)
    assert go(lim, "a", cost=0.6) == 0
    assert go(lim, "b", cost=0.6) > 0
    lim.done("a", paid(cost=0.5), ACCOUNT)
    with pytest.raises(CapReached, match=r"skillopt_max_cost: the cap of 1 US dollars"):
        go(lim, "b", cost=0.6)
    assert go(lim, "c", cost=0.5) == 0


def test_the_cap_of_time_stops_a_waiting_call_too() -> None:
    clock = Clock()
    lim = limits(clock, max_time=10.0, max_in_flight=1)
    go(lim, "a")
    assert go(lim, "b") > 0
    clock.now += 10
    with pytest.raises(CapReached, match="skillopt_max_time: 10 s"):
        go(lim, "b")


def test_the_calls_of_a_dead_process_do_not_block_the_others() -> None:
    lim = limits(max_in_flight=2, max_calls=3)
    go(lim, "w1-0", cost=0.1)
    go(lim, "w2-0")
    lim.forget("w1-")
    assert len(lim._flying) == 1
    assert lim.spent == Usage(1, 0, 9, 1, 0.1, estimated=True)
    assert go(lim, "w2-1") == 0
    lim.done("w1-0", FREE, ACCOUNT)
    assert len(lim._flying) == 2


def test_what_a_process_asked_before_it_died_may_arrive_late() -> None:
    """Each question is handled in a thread of its own, so the process may be forgotten by then."""
    lim = limits(max_in_flight=1)
    go(lim, "w1-0", cost=0.1)
    lim.forget("w1-")
    with pytest.raises(ModelFault, match="the process that asked has ended"):
        go(lim, "w1-1")
    assert len(lim._flying) == 0
    assert go(lim, "w2-0") == 0
    spent = lim.spent
    lim.done("w1-0", paid(cost=0.5), ACCOUNT)
    assert lim.spent == spent
    lim.done("w2-0", paid(cost=0.5), ACCOUNT)
    assert lim.spent.calls == spent.calls + 1
