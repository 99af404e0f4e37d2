"""Plan of ``--collect-only``, notes on the tasks, and the command ``pytest-skillopt doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    import pytest

    from pytest_skillopt import SkillTask
    from pytest_skillopt.settings import Settings


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


def advice(tasks: Sequence[SkillTask], settings: Settings) -> Iterable[str]:
    """Note skills with few val tasks, or without the trigger tasks that training needs."""
    from pytest_skillopt.addons.doctor.advice import notes_on_tasks

    return notes_on_tasks(tasks, settings)


def _doctor(args: argparse.Namespace) -> int:
    from pytest_skillopt.addons.doctor.examine import examine

    return examine(args.arguments)


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "doctor",
        help="check settings, skills and suite, and call each model once, before a training",
    )
    parser.add_argument(
        "arguments", nargs="*", metavar="PYTEST", help="arguments for pytest, after --"
    )
    parser.set_defaults(handle=_doctor)
