"""The commands ``init``, ``mine`` and ``judge calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

FORMATS = ("claude", "codex", "opencode", "copilot", "cursor", "jsonl")


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the commands; each sets ``handle``, a function of the arguments to an exit code."""
    parser = commands.add_parser("judge", help="see how far the judge agrees with people")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    action = actions.add_parser("calibrate", help="grade answers that people have labelled")
    action.add_argument("file", type=Path, metavar="LABELLED.jsonl")
    action.set_defaults(handle=_calibrate)


def _calibrate(args: argparse.Namespace) -> int:
    from pytest_skillopt.mine import configured
    from pytest_skillopt.mine.calibrate import calibrate

    return configured(lambda config: calibrate(config, args.file))
