"""The command line ``pytest-skillopt``: show runs and act on their results."""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pytest_skillopt import __version__
from pytest_skillopt.untrusted import no_command, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.report.words import Line
    from pytest_skillopt.run.directory import Home

USAGE_ERROR = 4
"""Exit code of pytest for wrong usage."""

_OWN = ("show", "diff")
_CI = ("CI", "GITHUB_ACTIONS", "TF_BUILD")
_ANSI = {"bold": 1, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE_ERROR, f"{self.prog}: error: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else list(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Write the code of a character that the terminal cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")
    args = _parser(argv).parse_args(argv)
    from pytest_skillopt.errors import UserError
    from pytest_skillopt.model.types import ModelError
    from pytest_skillopt.run.directory import RunError

    try:
        code: int = args.handle(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe (`... | head`); without this, Python complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (UserError, RunError, ModelError) as error:
        fail(str(error))
        return 1 if isinstance(error, UserError) else USAGE_ERROR
    return code


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="pytest-skillopt",
        description="Show runs of pytest-skillopt and act on their results.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    _add_own(commands)
    if not argv or argv[0] not in _OWN:
        # Only these commands need more than the existing runs.
        from pytest_skillopt.registry import declared

        for add_commands in declared("add_commands"):
            add_commands(commands)
    return parser


def _add_own(commands: argparse._SubParsersAction[_Parser]) -> None:
    show = commands.add_parser("show", help="print the report of a run")
    text = "show every task, every edit and the usage by stage"
    show.add_argument("-v", "--verbose", action="store_true", help=text)
    text = "show the measurements that the project has kept over time instead"
    show.add_argument("--history", action="store_true", help=text)
    text = "print the changes of a run as a patch for `git apply`"
    diff = commands.add_parser("diff", help=text)
    diff.add_argument("--output", type=Path, metavar="FILE", help="write the patch to a file")
    for parser, handle in ((show, _show), (diff, _diff)):
        add_run_arguments(parser)
        parser.set_defaults(handle=handle)


def add_run_arguments(parser: argparse.ArgumentParser, *, run: bool = True) -> None:
    """Add the argument for the folder of runs and, with ``run``, the one that chooses a run."""
    if run:
        text = "id of a run or its start (default: the latest)"
        parser.add_argument("run", metavar="RUN", nargs="?", help=text)
    place = "folder of the runs and the cache (default: the nearest .skillopt)"
    parser.add_argument("--dir", type=Path, metavar="DIR", help=place)


def home_of(args: argparse.Namespace) -> Home:
    """Return the folder given to a command, or the nearest one."""
    from pytest_skillopt.report.runs import find_home
    from pytest_skillopt.run.directory import Home

    return Home(args.dir) if args.dir else find_home(Path.cwd())


def _show(args: argparse.Namespace) -> int:
    from pytest_skillopt.report.runs import pick_run
    from pytest_skillopt.report.terminal import lines

    if args.history:
        from pytest_skillopt.registry import declared

        for history in declared("history"):
            for line in history(args.dir.absolute().parent if args.dir else Path.cwd()):
                print(shown(line))
        return 0
    _, result = pick_run(home_of(args), args.run)
    _print(lines(result, shutil.get_terminal_size().columns, verbose=args.verbose))
    return 0


def _diff(args: argparse.Namespace) -> int:
    from pytest_skillopt.report.runs import pick_run
    from pytest_skillopt.report.terminal import diff

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


def fail(message: str) -> int:
    """Print an error; return the exit code of wrong usage."""
    print(shown(f"pytest-skillopt: error: {message}"), file=sys.stderr)
    return USAGE_ERROR
