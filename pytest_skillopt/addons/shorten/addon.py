"""Searches ``shorten`` and ``trials,shorten``, and the command ``pytest-skillopt shorten``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.addon import AddOn
from pytest_skillopt.addons.later import Later

if TYPE_CHECKING:
    import argparse

    from pytest_skillopt.addons.shorten import search
else:
    search = Later("shorten.search")


def _add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    text = (
        "remove text that no task needs (runs `pytest --skillopt-train --skillopt-search=shorten`)"
    )
    # All arguments are pytest's: no prefix makes one an option of this parser.
    parser = commands.add_parser(
        "shorten", help=text, usage="%(prog)s [PYTEST ...]", prefix_chars="\0", add_help=False
    )
    parser.add_argument("arguments", nargs="...", metavar="PYTEST", help="arguments for pytest")
    parser.set_defaults(handle=lambda args: _run(parser, args.arguments))


def _run(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    import subprocess
    import sys

    if {"-h", "--help"} & {*arguments}:
        parser.print_help()
        return 0
    command = [sys.executable, "-m", "pytest", "--skillopt-train", "--skillopt-search=shorten"]
    return subprocess.run([*command, *arguments]).returncode


ADDON = AddOn(
    prompts=Path(__file__).parent / "prompts",
    searches={"shorten": search.shorten, "trials,shorten": search.trials_shorten},
    add_commands=_add_commands,
)
