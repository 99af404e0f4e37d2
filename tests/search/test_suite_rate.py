"""The pass rate of a suite, with its interval."""

from __future__ import annotations

from pytest_skillopt.run.result import Rate


def test_tasks_without_a_measurement_do_not_count() -> None:
    rate = Rate.of([(0, 0), (3, 3)])
    assert rate is not None
    assert (rate.rate, rate.tasks, rate.samples) == (1.0, 1, 3)
