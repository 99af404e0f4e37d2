"""Lanes: several rollouts at once in one process, for tests that mostly wait for a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.settings import setting

if TYPE_CHECKING:
    from pytest_skillopt.addons.lanes.lanes import Lanes
    from pytest_skillopt.settings import Settings


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """Setting of the number of lanes."""

    lanes: int = setting(
        1, "concurrent rollouts per worker", option=True, low=1, high=256, changes_samples=False
    )

    @property
    def slots(self) -> int:
        """Number of rollouts that a worker runs at once."""
        return self.lanes


SETTINGS = LaneSettings


def choose_workers(config: pytest.Config, settings: Settings) -> None:
    """Make xdist start one worker if none is requested, like ``-n 1``, since lanes need one.

    Raises:
        UsageError: xdist is switched off.
    """
    if settings.slots == 1:
        return
    if not config.pluginmanager.hasplugin("xdist"):
        raise pytest.UsageError("skillopt_lanes needs pytest-xdist, which is switched off here")
    if config.option.dist == "no" or not config.option.tx:
        config.option.dist, config.option.tx = "load", ["popen"]


def concurrent_runner(*arguments: Any, **options: Any) -> Lanes:
    """Make the lanes of a worker."""
    from pytest_skillopt.addons.lanes.lanes import Lanes

    return Lanes(*arguments, **options)
