"""Commands ``pytest-skillopt show`` and ``diff``: print the report and the changes of a run."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.addons.reports.terminal import diff, lines
from pytest_skillopt.cli import fail, home_of
from pytest_skillopt.registry import declared
from pytest_skillopt.report.runs import pick_run
from pytest_skillopt.untrusted import no_command, shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from pytest_skillopt.addons.reports.terminal import Line

_CI = ("CI", "GITHUB_ACTIONS", "TF_BUILD")
_ANSI = {"bold": 1, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


def show(args: argparse.Namespace) -> int:
    """Print the report of a run, or the measurements over time."""
    if args.history:
        for history in declared("history"):
            for line in history(args.dir.absolute().parent if args.dir else Path.cwd()):
                print(shown(line))
        return 0
    _, result = pick_run(home_of(args), args.run)
    _print(lines(result, shutil.get_terminal_size().columns, verbose=args.verbose))
    return 0


def show_diff(args: argparse.Namespace) -> int:
    """Print the changes of a run, or write them to a file."""
    run, result = pick_run(home_of(args), args.run)
    patch = "".join(skill.patch for skill in result.skills)
    if not patch:
        print(shown(f"run {run.id} changed nothing: {result.reason}"), file=sys.stderr)
    elif args.output:
        args.output.write_bytes(patch.encode("utf-8", "surrogateescape"))
    elif sys.stdout.isatty():
        _print(diff(patch, verbose=True))
    elif any(os.environ.get(name) for name in _CI) and no_command(patch) != patch:
        return fail("this CI would execute a line of the patch: write it with --output FILE")
    else:
        # Unchanged bytes, so that it applies: line ends and control characters are part of it.
        sys.stdout.buffer.write(patch.encode("utf-8", "surrogateescape"))
    return 0


def _print(report: Iterable[Line]) -> None:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in report:
        codes = [str(_ANSI[name]) for name, on in line.markup.items() if on] if coloured else []
        print(f"\x1b[{';'.join(codes)}m{line.text}\x1b[0m" if codes else line.text)
