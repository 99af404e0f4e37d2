"""Add-on for ``skill_judge``, with the command ``judge``, which compares it with people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.addon import AddOn
from pytest_skillopt.options import mode_named

if TYPE_CHECKING:
    import argparse

    import pytest

    from pytest_skillopt import Result


def pytest_skillopt_notes(config: pytest.Config, result: Result) -> str | None:
    """Note that a judge was never compared with people."""
    judged = any(row.role == "judge" for row in result.usage)
    mode = mode_named(result.mode)
    if not judged or result.simulated or mode.judges_tasks or mode.noise:
        return None
    from pytest_skillopt.addons.judging.calibrate import doubt
    from pytest_skillopt.model.roles import Models
    from pytest_skillopt.run.directory import Home

    home = Home(config.rootpath / Models.of(config).settings.dir)
    return doubt(home, [result.models.get("judge", "")]) or None


def _add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    parser = commands.add_parser("judge", help="compare the judge with people")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    action = actions.add_parser("calibrate", help="compare its grades with people's labels")
    action.add_argument(
        "file", type=Path, metavar="FILE", help="one JSON object with a label per line"
    )
    action.set_defaults(handle=_calibrate)


def _calibrate(args: argparse.Namespace) -> int:
    from pytest_skillopt.addons.judging.calibrate import calibrate
    from pytest_skillopt.addons.project import configured

    return configured(lambda config: calibrate(config, args.file))


ADDON = AddOn(roles={"skill_judge": "judge"}, add_commands=_add_commands)
