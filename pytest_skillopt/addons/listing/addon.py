"""Command ``pytest-skillopt runs``: list the runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    from pytest_skillopt.cli import add_run_arguments

    parser = commands.add_parser("runs", help="list the runs, the latest last")
    add_run_arguments(parser, run=False)
    parser.set_defaults(handle=_runs)


def _runs(args: argparse.Namespace) -> int:
    from pytest_skillopt.addons.listing.table import list_runs
    from pytest_skillopt.cli import fail, home_of
    from pytest_skillopt.report.runs import ELSEWHERE, load_runs
    from pytest_skillopt.untrusted import shown

    home = home_of(args)
    runs = load_runs(home)
    if not runs:
        return fail(f"no run in {home.runs} ({ELSEWHERE})")
    for line in list_runs(runs):
        print(shown(line))
    return 0
