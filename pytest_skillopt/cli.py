"""``pytest-skillopt``: look at runs, prune the cache, propose what a training found."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.report.text import Line
    from pytest_skillopt.run.directory import Home

USAGE_ERROR = 4
"""As pytest's own exit code for wrong usage."""

_OWN = ("show", "diff", "runs", "cache")
_ANSI = {"bold": 1, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE_ERROR, f"{self.prog}: error: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    args = _parser(argv).parse_args(argv)
    from pytest_skillopt.run.directory import RunError

    try:
        code: int = args.handle(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough (`... | head`); without this, Python complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except RunError as error:
        return _fail(str(error))
    return code


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(prog="pytest-skillopt", description=__doc__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    _add_show(commands)
    _add_diff(commands)
    _add_runs(commands)
    if not argv or argv[0] not in _OWN:
        # git, HTTP and crontab are needed by these commands alone.
        from pytest_skillopt.propose.commands import add_commands

        add_commands(commands)
    return parser


def _add_show(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser("show", help="print the report of a run")
    _add_run(parser)
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="every task, every edit, usage by stage"
    )
    parser.add_argument(
        "--open-path", action="store_true", help="print where the HTML report lies instead"
    )
    parser.set_defaults(handle=_show)


def _add_diff(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "diff", help="print what a run changed, as a patch that `git apply` takes"
    )
    _add_run(parser)
    parser.set_defaults(handle=_diff)


def _add_runs(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser("runs", help="list the runs, the latest last")
    _add_dir(parser)
    parser.set_defaults(handle=_runs)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="id of a run or its start (default: the latest)"
    )
    _add_dir(parser)


def _add_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="where runs and the cache are kept (default: the nearest .skillopt)",
    )


def _home(args: argparse.Namespace) -> Home:
    from pytest_skillopt.report.runs import find_home
    from pytest_skillopt.run.directory import Home

    return Home(args.dir) if args.dir else find_home(Path.cwd())


def _show(args: argparse.Namespace) -> int:
    from pytest_skillopt.report.runs import pick_run
    from pytest_skillopt.report.terminal import lines

    run, result = pick_run(_home(args), args.run)
    if args.open_path:
        html = run.path / "report.html"
        if not html.is_file():
            return _fail(f"{html} is not there; the run wrote no HTML report")
        print(html.resolve())
        return 0
    width = shutil.get_terminal_size().columns
    encoding = sys.stdout.encoding or "ascii"
    _print(lines(result, width, encoding=encoding, verbose=args.verbose))
    return 0


def _diff(args: argparse.Namespace) -> int:
    from pytest_skillopt.report import tables
    from pytest_skillopt.report.runs import pick_run

    run, result = pick_run(_home(args), args.run)
    patch = "".join(skill.patch for skill in result.skills)
    if not patch:
        print(f"run {run.id} changed nothing: {result.reason}", file=sys.stderr)
    elif sys.stdout.isatty():
        _print(tables.diff(patch, verbose=True))
    else:
        # Byte for byte, so that it applies: line ends and control characters are part of it.
        sys.stdout.buffer.write(patch.encode("utf-8", "surrogateescape"))
    return 0


def _runs(args: argparse.Namespace) -> int:
    from pytest_skillopt.report.runs import list_runs, load_runs

    home = _home(args)
    runs = load_runs(home)
    if not runs:
        return _fail(f"no run in {home.runs}")
    for line in list_runs(runs):
        print(line)
    return 0


def _print(report: Iterable[Line]) -> None:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in report:
        codes = [str(_ANSI[name]) for name, on in line.markup.items() if on] if coloured else []
        print(f"\x1b[{';'.join(codes)}m{line.text}\x1b[0m" if codes else line.text)


def _fail(message: str) -> int:
    print(f"pytest-skillopt: error: {message}", file=sys.stderr)
    return USAGE_ERROR
