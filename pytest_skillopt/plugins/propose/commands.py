"""Command ``propose``, and for unattended trainings ``job`` and ``schedule``."""

from __future__ import annotations

import contextlib
import math
import os
import re
import secrets
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.cli import tell
from pytest_skillopt.errors import UsageError, UserError
from pytest_skillopt.git import Clone
from pytest_skillopt.plugins.propose.adopt import add_adopt
from pytest_skillopt.plugins.propose.base import read_base
from pytest_skillopt.plugins.propose.proposal import FOLDER
from pytest_skillopt.plugins.propose.publish import Outcome, Publisher
from pytest_skillopt.plugins.propose.validate import base_entry
from pytest_skillopt.run.directory import SUMMARY
from pytest_skillopt.run.past import find_home
from pytest_skillopt.untrusted import no_command

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pytest_skillopt import SkillTask
    from pytest_skillopt.run.result import Result, SkillResult

_CAP_OPTIONS = {
    "calls": ("N", "maximum number of paid model calls"),
    "cost": ("USD", "maximum cost in US dollars"),
    "time": ("SECONDS", "maximum time in seconds"),
}

_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_SENTENCES = {
    "create": "{path}: pushed to the new branch {branch}",
    "update": "{path}: rebuilt the branch {branch}",
    "keep": "{path}: {branch} has this proposal already, nothing was pushed",
    "delete": "{path}: the base branch has this text now; {branch} was deleted",
    "nothing": "{path}: the base branch has this text already",
    "human": "{path}: somebody else has changed {branch}, so it was not touched",
    "declined": "{path}: this change was declined before, nothing was pushed",
}


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the commands; each sets ``handle``, a function from the arguments to an exit code."""
    propose = commands.add_parser("propose", help="open a pull request for a trained skill")
    add = propose.add_argument
    add("--dir", type=Path, metavar="DIR", help="folder (default: the latest proposal)")
    text = "target branch (default: the current one)"
    add("--base", metavar="BRANCH", default="", help=text)
    add("--remote", metavar="NAME", default="origin", help="the git remote (default: origin)")
    text = "push the branch and only print the text of the request"
    add("--no-forge", action="store_true", help=text)
    propose.set_defaults(handle=_propose)
    text = "train in a CI job: needs a spending cap, sets the job's outputs"
    job = commands.add_parser("job", help=text)
    job.set_defaults(handle=_job)
    schedule = _add_schedule(commands)
    for parser in (job, schedule):
        for name, (unit, text) in _CAP_OPTIONS.items():
            parser.add_argument(f"--max-{name}", metavar=unit, default="", help=text)
        text = "further arguments of pytest, as one string"
        parser.add_argument("--args", metavar="ARGUMENTS", default="", help=text)
    text = "arguments of propose, as one string"
    schedule.add_argument("--propose", metavar="ARGUMENTS", default="", help=text)
    schedule.set_defaults(check_propose=propose.parse_args)
    add_adopt(commands)


def _propose(args: argparse.Namespace) -> int:
    home = find_home()
    proposal = args.dir or home.path / FOLDER
    if args.dir and not proposal.exists():
        raise UsageError(f"--dir: there is no {proposal}: name the folder of a proposal")
    if not proposal.exists():
        tell(
            f"nothing to propose: there is no {proposal}, which a training writes if it accepts an "
            "edit"
        )
        write_outputs({"pull-request-url": ""})
        return 0
    root = Path.cwd() if args.dir else home.path.parent
    outcomes = []
    for outcome in Publisher(root, args).publish(proposal):
        _report(outcome, args)
        outcomes.append(outcome)
    open_ = [o.url for o in outcomes if o.url and o.action in ("create", "update", "keep", "human")]
    write_outputs({"pull-request-url": open_[0] if open_ else ""})
    return 0


def _report(outcome: Outcome, args: argparse.Namespace) -> None:
    words = _SENTENCES[outcome.action]
    words = words.format(path=outcome.skill.path, branch=outcome.request.branch)
    if outcome.url:
        words += f"\n  {outcome.url}"
    elif outcome.action == "keep" and not args.no_forge:
        # A command that was killed after its push could not see if there was one.
        words += "; if GitLab has no open request for it, delete the branch and repeat the command"
    tell(words)
    if args.no_forge and outcome.action in ("create", "update", "keep"):
        # Not through shown(): it would remove the characters that make the body inert.
        sys.stdout.write(no_command(f"\n{outcome.request.title}\n\n{outcome.request.body}\n"))


def pytest_skillopt_opened(config: pytest.Config, tasks: Sequence[SkillTask]) -> str:
    """Tell before anything is paid which skills no proposal may change, as they are committed.

    This module is a plugin of each training that is to be proposed.
    """
    refuses = "pytest-skillopt propose would refuse it now"
    try:
        clone = Clone(config.rootpath)
        base = read_base(clone, "HEAD")
    except UserError as error:
        return f"{refuses}: {error}"
    notes = []
    for skill in dict.fromkeys(task.skill for task in tasks):
        try:
            base_entry(clone.prefix + skill, base)
        except UserError as error:
            notes.append(f"{skill}: {refuses}: {error}")
    return "\n".join(notes)


class _Job:
    """Plugin of the training of a job that keeps how it has ended."""

    skills: Sequence[SkillResult] = ()
    summary = Path()

    @pytest.hookimpl(tryfirst=True)
    def pytest_skillopt_finished(self, result: Result, folder: Path) -> None:
        self.skills = result.skills
        self.summary = folder / SUMMARY


def _job(args: argparse.Namespace) -> int:
    """Train in this process: whatever ends the job leaves no training that goes on to pay."""
    arguments = training_arguments(args)
    sys.argv = ["pytest", *arguments]
    sys.path.insert(0, str(Path.cwd()))  # as python -m pytest does
    job = _Job()
    code = int(pytest.main(arguments, plugins=[job, sys.modules[__name__]]))
    accepted = any(skill.status == "accepted" for skill in job.skills)
    write_outputs({"accepted": "true" if accepted else "false"})
    if job.summary.is_file():
        _append("GITHUB_STEP_SUMMARY", job.summary.read_text(encoding="utf-8") + "\n")
    return code


def write_outputs(values: Mapping[str, str]) -> None:
    """Append to ``$GITHUB_OUTPUT`` if it is set."""
    # The delimiter is random: a value that contained it could set other outputs.
    end = f"end-{secrets.token_hex(16)}"
    _append("GITHUB_OUTPUT", "".join(f"{k}<<{end}\n{v}\n{end}\n" for k, v in values.items()))


def _append(variable: str, text: str) -> None:
    """Append to the file that an environment variable names, if it is set."""
    if path := os.environ.get(variable):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)


def _add_schedule(commands: argparse._SubParsersAction[Any]) -> argparse.ArgumentParser:
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
    hour = int(match[1])
    minute = int(match[2])
    home = find_home().path.resolve()
    log = home / "runs" / "schedule.log"
    train = [sys.executable, "-m", "pytest", *training_arguments(args, "--skillopt-write=no")]
    options = split_arguments("--propose", args.propose)
    args.check_propose(options)  # now, and not at night after a paid training
    # -P: no file of the project is imported, as everywhere where something is pushed.
    propose = [sys.executable, "-P", "-m", "pytest_skillopt", "propose", *options]
    enter = shlex.join(["cd", str(home.parent)])
    make_folder = shlex.join(["mkdir", "-p", str(log.parent)])
    both = f"{shlex.join(train)} && {shlex.join(propose)}"
    command = f"{enter} && {make_folder} && {{ {both}; }} >>{shlex.quote(str(log))} 2>&1"
    if "\n" in command or "\r" in command:
        raise UserError(f"a crontab line cannot contain a line break: {command!r}")
    _check(train, home.parent)
    sys.stdout.write(f"{minute} {hour} * * * {_escaped(command)}\n")
    return 0


def _check(train: Sequence[str], folder: Path) -> None:
    """Show the plan of a night, which calls no model; UserError if pytest refuses the command."""
    plan = [*train, "--collect-only", "-qq", "-p", __name__]
    # The standard output is the line of the crontab.
    done = subprocess.run(plan, cwd=folder, stdin=subprocess.DEVNULL, stdout=2)
    if done.returncode == pytest.ExitCode.USAGE_ERROR:
        raise UserError("pytest refuses these arguments, as it says above")


def _escaped(command: str) -> str:
    """Escape each %, which cron turns into a line break, even in quotes."""
    return command.replace("%", "\\%")


def training_arguments(args: argparse.Namespace, *own: str) -> list[str]:
    """Return pytest's arguments for an unattended training; ``own`` precede those of the user.

    Raises:
        UserError: there is no cap, a cap is not a positive number, or quotes are not closed.
    """
    given = {f"max-{name}": getattr(args, f"max_{name}").strip() for name in _CAP_OPTIONS}
    given = {name: value for name, value in given.items() if value}
    for name, value in given.items():
        if not _is_positive(value):
            raise UserError(f"--{name}: {value!r} is not a number above 0")
    if not given:
        names = ", ".join(f"--max-{name}" for name in _CAP_OPTIONS)
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
