"""The command line ``pytest-skillopt``: show runs and act on their results."""

from __future__ import annotations

import argparse
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_skillopt import __version__
from pytest_skillopt.plugins import hooks
from pytest_skillopt.untrusted import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE_ERROR = 4
"""Exit code of pytest for wrong usage."""
_REMOVED = {
    "publish-receipts": "the monthly job of docs/ci.md reads the results of earlier runs, and "
    "fails if the skill is not shown to help",
    "--history": "pytest-skillopt show --list lists what runs have measured",
    "runs": "pytest-skillopt show --list",
    "diff": "pytest-skillopt show --patch",
    "unschedule": "crontab -e, and delete the line of the project",
    "--dry-run": "pytest-skillopt show -v shows what propose would push",
    "--forge": "set CI_SERVER_URL to the address of a GitLab of your own",
    "--ready": "requests are drafts: set one ready where it is",
    "--label": "requests have no labels: their branches begin with skillopt/",
    "--remove": "crontab -e, and delete the line of the project",
    "--run": "pytest FILE runs the drafts",
    "mine": "pytest-skillopt init SKILL --from FILE",
    "skill": "name docs/getting-started.md and docs/reference.md in the AGENTS.md of your agent",
    "doctor": "pytest --skillopt-train --collect-only names what is at fault; a run asks a model "
    "for one word before its first rollout",
    "shorten": "pytest --skillopt-train --skillopt-search=shorten",
    "--like": "name the transcripts themselves: pytest-skillopt init SKILL --from FILE",
    "--variations": "parametrize the reviewed test over further requests",
    "--system": "schedule writes a line for cron only, which macOS has, too; docs/ci.md shows a "
    "systemd timer and the two commands that any other scheduler starts",
}
"""Commands and options that are gone, and what to do now."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE_ERROR, f"{self.prog}: error: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else list(argv)
    _open_output()
    for word in (*argv[:1], *(word for word in argv if word.startswith("--"))):
        if (name := word.partition("=")[0]) in _REMOVED:
            return fail(f"{name} is gone: {_REMOVED[name]}")
    args = _parser(argv).parse_args(argv)
    from pytest_skillopt.errors import UsageError, UserError
    from pytest_skillopt.hookresults import PluginError, naming
    from pytest_skillopt.model.types import ModelError

    try:
        with naming():
            code: int = args.handle(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe (`... | head`); without this, Python complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (UsageError, PluginError) as error:
        return fail(str(error))
    except (UserError, ModelError) as error:
        fail(str(error))
        return 1
    except OSError as error:
        place = error.filename or "a file or the current folder"
        return fail(f"{place}: {error.strerror or error}")
    return code


def _open_output() -> None:
    """Have an output for each character, by its code if need be, also if the caller closed it."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the process ends)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="pytest-skillopt",
        description="Show runs of pytest-skillopt and act on their results.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    _add_commands(commands)
    if not (argv and argv[0] in commands.choices):  # those of the core start without plugins
        hooks().pytest_skillopt_commands(commands=commands)
    return parser


def _add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the commands of the core."""
    show = commands.add_parser("show", help="print the report of a run, its patch, or all runs")
    add = show.add_mutually_exclusive_group().add_argument
    text = "show every task, every edit and the usage by stage"
    add("-v", "--verbose", action="store_true", help=text)
    text = "print the changes of the run as a patch for `git apply`"
    add("--patch", action="store_true", help=text)
    add("--list", action="store_true", help="list all runs, the latest last")
    add_run_arguments(show)
    show.set_defaults(handle=_show)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose a run and the folder of runs."""
    text = "id of a run or its start (default: the latest)"
    parser.add_argument("run", metavar="RUN", nargs="?", help=text)
    place = "folder of the runs and the cache (default: the nearest .skillopt)"
    parser.add_argument("--dir", type=Path, metavar="DIR", help=place)


def _show(args: argparse.Namespace) -> int:
    from pytest_skillopt.show import show

    return show(args)


def tell(text: str) -> None:
    """Print a line of a command's output; text from outside is harmless."""
    print(shown(text))


def fail(message: str) -> int:
    """Print an error; return the exit code of wrong usage."""
    print(shown(f"pytest-skillopt: error: {message}"), file=sys.stderr)
    return USAGE_ERROR
