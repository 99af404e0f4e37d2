"""The smallest gain that a suite can show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.addons.compare import aa as power
from pytest_skillopt.addons.compare.aa import smallest_gain

if TYPE_CHECKING:
    import pytest


def test_smallest_gain_falls_with_the_size_of_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "REPLICATES", 8)

    def mixed(n: int) -> list[tuple[float, int]]:
        return [(3.0, 3)] * (n // 2) + [(0.0, 3)] * (n // 4) + [(1.0, 3)] * (n // 4)

    small, large = smallest_gain(mixed(8)), smallest_gain(mixed(16))
    assert small is not None
    assert large is not None
    assert 0 < large < small <= 1
    assert smallest_gain(mixed(8)) == small


def test_nothing_to_gain_where_every_task_passes() -> None:
    assert smallest_gain([(3, 3)] * 12) is None
