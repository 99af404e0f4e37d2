"""The pass rate of a suite, with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_skillopt.run.result import Rate

if TYPE_CHECKING:
    from collections.abc import Sequence

counts = st.lists(st.integers(1, 9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))


@given(counts)
def test_a_rate_lies_in_its_interval(tasks: Sequence[tuple[int, int]]) -> None:
    rate = Rate.of(tasks)
    if not tasks:
        assert rate is None
        return
    assert rate is not None
    assert 0 <= rate.low <= rate.rate <= rate.high <= 1
    assert rate.low < rate.high
    assert rate.rate == pytest.approx(sum(p / n for p, n in tasks) / len(tasks))
    twice = Rate.of([(2 * p, 2 * n) for p, n in tasks])
    assert twice is not None
    assert twice.high - twice.low <= rate.high - rate.low + 0.05


def test_tasks_without_a_measurement_do_not_count() -> None:
    rate = Rate.of([(0, 0), (3, 3)])
    assert rate is not None
    assert (rate.rate, rate.tasks, rate.samples) == (1.0, 1, 3)
