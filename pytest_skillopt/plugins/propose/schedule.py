"""Train unattended: the command with its caps, and the line of a crontab for every night."""

from __future__ import annotations

import contextlib
import math
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any

from pytest_skillopt.errors import UserError
from pytest_skillopt.run.past import find_home

if TYPE_CHECKING:
    import argparse

CAPS = {
    "calls": ("N", "maximum number of paid model calls"),
    "cost": ("USD", "maximum cost in US dollars"),
    "time": ("SECONDS", "maximum time in seconds"),
}

_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def add_schedule(commands: argparse._SubParsersAction[Any]) -> argparse.ArgumentParser:
    """Declare the command; return its parser."""
    text = "print a crontab line that trains and proposes every night"
    schedule: argparse.ArgumentParser = commands.add_parser("schedule", help=text)
    text = "local time of day (default: 03:17)"
    schedule.add_argument("--at", metavar="HH:MM", default="03:17", help=text)
    schedule.set_defaults(handle=_schedule)
    return schedule


def _schedule(args: argparse.Namespace) -> int:
    """Print the line of a crontab.

    It trains with ``--skillopt-write=no``, so that the next night starts from the merged skill, not
    from the proposed one.
    """
    match = _TIME.fullmatch(args.at)
    if match is None:
        raise UserError(f"{args.at!r} is not a time of day: write HH:MM, e.g. 03:17")
    hour, minute = int(match[1]), int(match[2])
    home = find_home().path.resolve()
    log = home / "runs" / "schedule.log"
    train = [sys.executable, "-m", "pytest", *training(args, "--skillopt-write=no")]
    options = split_arguments("--propose", args.propose)
    args.check_propose(options)  # now, and not at night after a paid training
    # -P: no file of the project is imported, as everywhere where something is pushed.
    propose = [sys.executable, "-P", "-m", "pytest_skillopt", "propose", *options]
    command = (
        f"cd {shlex.quote(str(home.parent))} && mkdir -p {shlex.quote(str(log.parent))} && "
        f"{{ {shlex.join(train)} && {shlex.join(propose)}; }} >>{shlex.quote(str(log))} 2>&1"
    )
    if "\n" in command or "\r" in command:
        raise UserError(f"a crontab line cannot contain a line break: {command!r}")
    sys.stdout.write(f"{minute} {hour} * * * {_escaped(command)}\n")
    return 0


def _escaped(command: str) -> str:
    """Escape each %, which cron turns into a line break, even in quotes."""
    return command.replace("%", "\\%")


def training(args: argparse.Namespace, *own: str) -> list[str]:
    """Return pytest's arguments for an unattended training; ``own`` precede those of the user.

    Raises:
        UserError: there is no cap, a cap is not a positive number, or quotes are not closed.
    """
    given = {f"max-{name}": getattr(args, f"max_{name}").strip() for name in CAPS}
    given = {name: value for name, value in given.items() if value}
    for name, value in given.items():
        if not _is_positive(value):
            raise UserError(f"--{name}: {value!r} is not a number above 0")
    if not given:
        names = ", ".join(f"--max-{name}" for name in CAPS)
        raise UserError(f"a job needs a spending cap, at least one of {names}")
    flags = [f"--skillopt-{name}={value}" for name, value in given.items()]
    arguments = [*own, *split_arguments("--args", args.args)]
    # The caps come last, so that no argument overrides one.
    return ["--skillopt-train", *arguments, *flags]


def split_arguments(option: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"{option}: {error}: {text!r}") from None


def _is_positive(value: str) -> bool:
    with contextlib.suppress(ValueError):
        return 0 < float(value) < math.inf
    return False
