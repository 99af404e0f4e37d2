"""Command ``propose``, and for unattended trainings ``job``."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shlex
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
    text = "train unattended, as in a CI job: needs a spending cap, sets the job's outputs"
    job = commands.add_parser("job", help=text)
    job.set_defaults(handle=_job)
    for name, (unit, text) in _CAP_OPTIONS.items():
        job.add_argument(f"--max-{name}", metavar=unit, default="", help=text)
    text = "further arguments of pytest, as one string"
    job.add_argument("--args", metavar="ARGUMENTS", default="", help=text)
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
        self.skills, self.summary = result.skills, folder / SUMMARY


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


def training_arguments(args: argparse.Namespace) -> list[str]:
    """Return pytest's arguments for an unattended training.

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
    try:
        own = shlex.split(args.args)
    except ValueError as error:
        raise UserError(f"--args: {error}: {args.args!r}") from None
    # The caps come last, so that no argument overrides one.
    flags = [f"--skillopt-{name}={value}" for name, value in given.items()]
    return ["--skillopt-train", *own, *flags]


def _is_positive(value: str) -> bool:
    with contextlib.suppress(ValueError):
        return 0 < float(value) < math.inf
    return False
