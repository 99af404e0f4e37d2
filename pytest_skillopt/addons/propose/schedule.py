"""Train unattended: the command with its caps, and what a scheduler needs for every night."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import plistlib
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from pytest_skillopt.addons.runs import find_home
from pytest_skillopt.errors import UserError
from pytest_skillopt.skill.files import slug

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

CAPS = {
    "calls": ("N", "maximum number of paid model calls"),
    "cost": ("USD", "maximum cost in US dollars"),
    "time": ("SECONDS", "maximum time in seconds"),
}

_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_SYSTEMS = ("cron", "launchd", "windows")


def add_schedule(commands: argparse._SubParsersAction[Any]) -> argparse.ArgumentParser:
    """Declare both commands; return the parser of ``schedule``."""
    text = "print a crontab line, property list or task that trains and proposes every night"
    schedule: argparse.ArgumentParser = commands.add_parser("schedule", help=text)
    text = "local time of day (default: 03:17)"
    schedule.add_argument("--at", metavar="HH:MM", default="03:17", help=text)
    schedule.set_defaults(handle=_schedule)
    text = "remove the project's line from the crontab on standard input, or print how to"
    unschedule = commands.add_parser("unschedule", help=text)
    unschedule.set_defaults(handle=_unschedule)
    for parser in (schedule, unschedule):
        text = "scheduler of the machine (default: cron)"
        parser.add_argument("--system", choices=_SYSTEMS, default="cron", help=text)
    return schedule


def _schedule(args: argparse.Namespace) -> int:
    """Print the entry of a scheduler.

    It trains with ``--skillopt-write=no``, so that the next night starts from the merged skill, not
    from the proposed one. Advice goes to the standard error, so that a pipe gets only the entry.
    """
    match = _TIME.fullmatch(args.at)
    if match is None:
        raise UserError(f"{args.at!r} is not a time of day: write HH:MM, e.g. 03:17")
    hour, minute = int(match[1]), int(match[2])
    home = find_home(Path.cwd()).path.resolve()
    log = home / "runs" / "schedule.log"
    train = training_command(args, "--skillopt-write=no")
    options = split_arguments("--propose", args.propose)
    propose = [sys.executable, "-m", "pytest_skillopt", "propose", *options]
    if args.system == "windows":
        sys.stdout.write(_windows_task(hour, minute, home.parent, log, (train, propose)))
        way = f"schtasks /Create /TN {_label(home.parent)} /XML task.xml"
        sys.stderr.write(f"save it as task.xml, then: {way}\n")
        return 0
    command = (
        f"{_beginning(home.parent)}mkdir -p {shlex.quote(str(log.parent))} && "
        f"{{ {shlex.join(train)} && {shlex.join(propose)}; }} >>{shlex.quote(str(log))} 2>&1"
    )
    if args.system == "launchd":
        entry = {
            "Label": _label(home.parent),
            "ProgramArguments": ["/bin/sh", "-c", command],
            "StartCalendarInterval": {"Hour": hour, "Minute": minute},
        }
        sys.stdout.write(plistlib.dumps(entry, sort_keys=False).decode())
        place = _property_list(home.parent)
        way = f"launchctl bootstrap gui/$(id -u) {place}"
        sys.stderr.write(f"save it as {place}, then: {way}\n")
        return 0
    if "\n" in command or "\r" in command:
        raise UserError(f"a crontab line cannot contain a line break: {command!r}")
    sys.stdout.write(f"{minute} {hour} * * * {_escaped(command)}\n")
    return 0


def _unschedule(args: argparse.Namespace) -> int:
    project = find_home(Path.cwd()).path.resolve().parent
    if args.system == "launchd":
        way = f"launchctl bootout gui/$(id -u)/{_label(project)}; rm {_property_list(project)}"
        sys.stdout.write(f"{way}\n")
    elif args.system == "windows":
        sys.stdout.write(f"schtasks /Delete /F /TN {_label(project)}\n")
    else:
        if sys.stdin.isatty():
            way = "crontab -l | pytest-skillopt unschedule | crontab -"
            raise UserError(f"unschedule reads a crontab: {way}")
        for line in sys.stdin:
            if f" * * * {_escaped(_beginning(project))}" not in line:
                sys.stdout.write(line)
    return 0


def _property_list(project: Path) -> str:
    return f"~/Library/LaunchAgents/{_label(project)}.plist"


def _beginning(project: Path) -> str:
    return f"cd {shlex.quote(str(project))} && "


def _escaped(command: str) -> str:
    """Escape each %, which cron turns into a line break, even in quotes."""
    return command.replace("%", "\\%")


def _label(project: Path) -> str:
    digest = hashlib.sha256(os.fsencode(project)).hexdigest()[:8]
    return f"skillopt-{slug(project.name)}-{digest}"


def _windows_task(
    hour: int, minute: int, project: Path, log: Path, commands: Sequence[Sequence[str]]
) -> str:
    lines = " && ".join(subprocess.list2cmdline(command) for command in commands)
    folder = f'(if not exist "{log.parent}" mkdir "{log.parent}")'
    command = f'{folder} && ({lines}) >>"{log}" 2>&1'
    if "%" in command or "\n" in command:
        raise UserError(f"a task of Windows cannot contain % or a line break: {command!r}")
    task = Path(__file__).with_name("task.xml").read_text(encoding="utf-8")
    texts = {"command": escape(command), "folder": escape(str(project))}
    return task.format(hour=hour, minute=minute, **texts)


def training_command(args: argparse.Namespace, *own: str) -> list[str]:
    """Return the pytest command of an unattended training; ``own`` precede the user's arguments.

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
    return [sys.executable, "-m", "pytest", "--skillopt-train", *arguments, *flags]


def split_arguments(option: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"{option}: {error}: {text!r}") from None


def _is_positive(value: str) -> bool:
    with contextlib.suppress(ValueError):
        return 0 < float(value) < math.inf
    return False
