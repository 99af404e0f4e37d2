"""Lanes: several rollouts at once in one process, for tests that mostly wait for a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.addon import AddOn
from pytest_skillopt.addons.later import Later
from pytest_skillopt.options import Mode
from pytest_skillopt.settings import AddOnSettings, Settings, setting

if TYPE_CHECKING:
    from pytest_skillopt.addons.lanes import lanes
else:
    lanes = Later("lanes.lanes")


@dataclass(frozen=True, slots=True)
class LaneSettings(AddOnSettings):
    """Setting of the number of lanes."""

    lanes: int = setting(
        1, "concurrent rollouts per worker", option=True, low=1, high=256, free=True
    )

    @property
    def slots(self) -> int:
        """Number of rollouts that a worker runs at once."""
        return self.lanes


ADDON = AddOn(settings=LaneSettings, concurrent_runner=lanes.Lanes)


def pytest_cmdline_main(config: pytest.Config) -> None:
    """Make xdist start one worker if none is requested, like ``-n 1``, since lanes need one.

    xdist has read its options by now, and the mode has not chosen its workers.

    Raises:
        UsageError: xdist is switched off.
    """
    if config.option.collectonly or hasattr(config, "workerinput") or not Mode.from_config(config):
        return
    if Settings.from_config(config).slots == 1:
        return
    if not config.pluginmanager.hasplugin("xdist"):
        raise pytest.UsageError("skillopt_lanes needs pytest-xdist, which is switched off here")
    if config.option.dist == "no" or not config.option.tx:
        config.option.dist, config.option.tx = "load", ["popen"]
