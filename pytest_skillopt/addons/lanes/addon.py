"""Lanes: several rollouts at once in one process, for tests that mostly wait for a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.addon import AddOn
from pytest_skillopt.addons.later import Later
from pytest_skillopt.options import asked_for
from pytest_skillopt.settings import AddOnSettings, early_value, setting

if TYPE_CHECKING:
    from collections.abc import Generator

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


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, args: list[str]
) -> Generator[None, None, None]:
    """Add ``-n 1`` if no worker is requested, since lanes need one.

    Other plugins then see a run with workers, as early as they look: pytest-cov does so in this
    hook. A wrapper comes before all of them.
    """
    _request_a_worker(early_config, args)
    return (yield)


def _request_a_worker(config: pytest.Config, args: list[str]) -> None:
    """Request one worker of xdist, if there are lanes and no workers yet.

    Raises:
        UsageError: xdist is switched off.
    """
    options = config.known_args_namespace
    if options.collectonly or options.help or not asked_for(options):
        return
    if early_value(config, "lanes") == 1:
        return
    if not config.pluginmanager.hasplugin("xdist"):
        raise pytest.UsageError("skillopt_lanes needs pytest-xdist, which is switched off here")
    is_distributed = options.distload or options.dist != "no"
    if options.numprocesses or (is_distributed and options.tx):
        return
    options.numprocesses = 1
    end = args.index("--") if "--" in args else len(args)
    args.insert(end, "--numprocesses=1")
