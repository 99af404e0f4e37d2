"""Commands ``init``, ``mine`` and ``handoff``, and the model ``handoff``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    import pytest

    from pytest_skillopt import Model, Result, Role


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the commands."""
    from pytest_skillopt.addons.mine import commands as ours

    ours.add_commands(commands)


def pytest_skillopt_client(config: pytest.Config, role: Role) -> Model | None:
    """Make the model for a role set to ``handoff``: a person, or an agent that a person uses."""
    from pytest_skillopt.model.config import provider_of
    from pytest_skillopt.model.roles import Models

    models = Models.of(config)
    if provider_of(models.settings, role) != "handoff":
        return None
    from pytest_skillopt.addons.mine.handoff import Handoff
    from pytest_skillopt.run.directory import Home

    reporter = config.pluginmanager.get_plugin("terminalreporter")
    home = Home(config.rootpath / models.settings.dir)
    return Handoff(role, home, reporter.write_line if reporter else print, models.throttle)


def pytest_skillopt_notes(config: pytest.Config, result: Result) -> str | None:
    """Note what each task tells of a skill."""
    if result.mode != "compare":
        return None
    from pytest_skillopt.addons.mine.verdicts import verdicts

    return verdicts(result) or None
