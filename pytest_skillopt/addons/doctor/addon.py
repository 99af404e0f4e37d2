"""Plan of ``--collect-only``, notes on the tasks, and the command ``pytest-skillopt doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_skillopt.addons.later import later

if TYPE_CHECKING:
    import argparse

    import pytest

advice = later("doctor.plan:notes_on_tasks")


def pytest_configure(config: pytest.Config) -> None:
    """With a mode on, show its plan if pytest only collects."""
    if not config.option.collectonly or hasattr(config, "workerinput"):
        return
    from pytest_skillopt.options import Mode
    from pytest_skillopt.settings import Settings

    if mode := Mode.from_config(config):
        from pytest_skillopt.addons.doctor.plan import Plan

        plan = Plan(config, mode, Settings.from_config(config))
        config.pluginmanager.register(plan, "skillopt-plan")


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "doctor",
        help="check settings, skills and suite, and call each model once, before a training",
    )
    parser.add_argument(
        "arguments", nargs="*", metavar="PYTEST", help="arguments for pytest, after --"
    )
    parser.set_defaults(handle=later("doctor.examine:examine"))
