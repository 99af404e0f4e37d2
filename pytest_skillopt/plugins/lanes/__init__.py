"""Lanes: several rollouts at once in one process, for tests that mostly wait for a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.options import given_options

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pytest_skillopt import (
        ConcurrentRunner,
        Rollout,
        RolloutRunner,
        Settings,
        Watchdog,
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "concurrent rollouts per worker (default: 1)"
    parser.getgroup("skillopt").addoption("--skillopt-lanes", metavar="N", help=text)
    parser.addini("skillopt_lanes", "see the option", type="int", default=None)


def pytest_skillopt_runner(
    runner: RolloutRunner,
    settings: Settings,
    watchdog: Watchdog,
    deliver: Callable[[Rollout], None],
) -> ConcurrentRunner | None:
    """Return the lanes of a worker, if there are several."""
    if settings.lanes == 1:
        return None
    from pytest_skillopt.plugins.lanes.lanes import Lanes

    return Lanes(runner, settings.lanes, watchdog, deliver)


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
    if options.collectonly or options.help or not given_options(options):
        return
    if options.skillopt_lanes is None and config.getini("skillopt_lanes") is None:
        return
    from pytest_skillopt.mode import is_asked_for
    from pytest_skillopt.settings import early_value

    if not is_asked_for(config) or early_value(config, "lanes") == 1:
        return
    if not config.pluginmanager.hasplugin("xdist"):
        raise pytest.UsageError("skillopt_lanes needs pytest-xdist: load it, by -p xdist")
    is_distributed = options.distload or options.dist != "no"
    if options.numprocesses or (is_distributed and options.tx):
        return
    options.numprocesses = 1
    end = args.index("--") if "--" in args else len(args)
    args.insert(end, "--numprocesses=1")
