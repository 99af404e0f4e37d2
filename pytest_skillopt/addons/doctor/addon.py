"""Command ``pytest-skillopt doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


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
