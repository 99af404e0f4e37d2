"""Commands ``init``, ``mine``, ``handoff`` and ``judge``, and the model ``handoff``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    import pytest

    from pytest_skillopt import Model, Result, Role


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the commands."""
    from pytest_skillopt.addons.mine import commands as ours

    ours.add_commands(commands)


def judged(excinfo: pytest.ExceptionInfo[BaseException], verdicts: Sequence[object]) -> bool:
    """Tell whether a judge's verdict failed a test."""
    from pytest_skillopt.addons.mine.judged import on_a_verdict

    return on_a_verdict(excinfo, verdicts)


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
    """Note what each task tells of a skill, or that a judge was never compared with people."""
    if result.mode == "compare":
        from pytest_skillopt.addons.mine.verdicts import verdicts

        if said := verdicts(result):
            return said
    judged = any(row.role == "judge" for row in result.usage)
    if not judged or result.simulated or result.mode in ("evaluate", "aa"):
        return None
    from pytest_skillopt.addons.mine.calibrate import doubt
    from pytest_skillopt.model.roles import Models
    from pytest_skillopt.run.directory import Home

    home = Home(config.rootpath / Models.of(config).settings.dir)
    return doubt(home, [result.models.get("judge", "")]) or None
