"""The commands ``propose``, ``job`` and ``schedule``: the last two for trainings nobody watches."""

from __future__ import annotations

import math
import os
import re
import secrets
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.propose import ProposeError
from pytest_skillopt.propose.publish import Options, Outcome, Publisher
from pytest_skillopt.report.runs import find_home, pick_run
from pytest_skillopt.run.directory import RunError
from pytest_skillopt.untrusted import environment, no_command, shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pytest_skillopt.run.result import Result

NOTHING_TRAINED = {"accepted": "false", "pass-rate-before": "", "pass-rate-after": ""}
"""The outputs of a job that ended before there was a run."""
LOG = "runs/schedule.log"
"""Where the crontab entry logs to, under the project's ``.skillopt``."""
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_LABEL = re.compile(r"[^\s,][^,\n]{0,49}")

_SENTENCES = {
    "create": "{path}: pushed to the new branch {branch}",
    "update": "{path}: rebuilt the branch {branch}",
    "keep": "{path}: {branch} holds this very proposal, nothing was pushed",
    "delete": "{path}: the base branch has this text by now; {branch} was deleted",
    "nothing": "{path}: the base branch has this text already",
    "human": "{path}: somebody has worked on {branch}, it was left alone",
    "declined": "{path}: this change was declined before, nothing was pushed",
}


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the commands; each sets ``handle``, a function of the arguments to an exit code."""
    _add_propose(commands)
    _add_job(commands)
    _add_schedule(commands)


def _add_propose(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("propose", help="open a pull request for what a training found")
    add = parser.add_argument
    add("--dir", type=Path, metavar="DIR", help="the proposal (default: that of the latest run)")
    add("--base", metavar="BRANCH", default="", help="where requests go (default: checked out)")
    add("--remote", metavar="NAME", default="origin", help="the git remote (default: origin)")
    add(
        "--forge",
        choices=("github", "gitlab", "none"),
        help="what the remote is (default: as CI or the remote's host says)",
    )
    add(
        "--no-forge",
        dest="forge",
        action="store_const",
        const="none",
        help="push the branch and print the text of the request",
    )
    add("--ready", action="store_true", help="no draft")
    add("--label", metavar="LABEL", action="append", help="may be repeated (default: skillopt)")
    parser.set_defaults(handle=_propose)


def _add_job(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "job", help="train as a CI job does: with a spending cap, setting the job's outputs"
    )
    _add_training_options(parser)
    parser.set_defaults(handle=_job)


def _add_training_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-calls", metavar="N", default="", help="most paid model calls")
    parser.add_argument("--max-cost", metavar="USD", default="", help="most US dollars")
    parser.add_argument("--max-time", metavar="SECONDS", default="", help="most seconds")
    parser.add_argument(
        "--args", metavar="ARGUMENTS", default="", help="further arguments of pytest, one string"
    )


def _add_schedule(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "schedule", help="print a crontab's line that trains and proposes every night"
    )
    parser.add_argument(
        "--at", metavar="HH:MM", default="03:17", help="local time of day (default: 03:17)"
    )
    _add_training_options(parser)
    parser.add_argument(
        "--propose", metavar="ARGUMENTS", default="", help="arguments of propose, one string"
    )
    parser.set_defaults(handle=_schedule)


def _propose(args: argparse.Namespace) -> int:
    home = find_home(Path.cwd())
    options = Options(
        proposal=args.dir or home.proposal,
        base=args.base,
        remote=args.remote,
        forge=args.forge,
        draft=not args.ready,
        labels=_labels(args.label),
    )
    if not options.proposal.exists():
        sys.stdout.write(
            f"nothing to propose: there is no {shown(str(options.proposal))}, which the latest "
            "training leaves if it accepted an edit, in a git repository\n"
        )
        write_outputs({"pull-request-url": ""})
        return 0
    root = Path.cwd() if args.dir else home.path.parent
    outcomes = Publisher(root, options, environment()).publish()
    for outcome in outcomes:
        _report(outcome, with_text=args.forge == "none")
    open_ = [o.url for o in outcomes if o.url and o.action in ("create", "update", "keep", "human")]
    write_outputs({"pull-request-url": open_[0] if open_ else ""})
    return 0


def _report(outcome: Outcome, *, with_text: bool) -> None:
    sentence = _SENTENCES[outcome.action]
    said = sentence.format(path=outcome.skill.path, branch=outcome.request.branch)
    sys.stdout.write(shown(f"{said}\n  {outcome.url}" if outcome.url else said) + "\n")
    if with_text and outcome.action in ("create", "update", "keep"):
        # Not through shown: the body has been made inert by characters that it would take out.
        sys.stdout.write(no_command(f"\n{outcome.request.title}\n\n{outcome.request.body}\n"))


def _job(args: argparse.Namespace) -> int:
    command = training_command(_caps(args), args.args)
    home = find_home(Path.cwd())
    there = set(home.run_names())
    code = subprocess.run(command).returncode
    new = [name for name in home.run_names() if name not in there]
    values = NOTHING_TRAINED
    try:
        if new:
            from pytest_skillopt.report.markdown import step_summary

            _, result = pick_run(home, new[-1])
            values = training_outputs(result)
            _append("GITHUB_STEP_SUMMARY", f"{step_summary(result)}\n")
    except RunError as error:
        sys.stderr.write(f"pytest-skillopt: {shown(str(error))}\n")
    write_outputs(values)
    return code


def _caps(args: argparse.Namespace) -> dict[str, str]:
    return {"max-calls": args.max_calls, "max-cost": args.max_cost, "max-time": args.max_time}


def _schedule(args: argparse.Namespace) -> int:
    home = find_home(Path.cwd()).path.resolve()
    train = training_command(_caps(args), args.args, "--skillopt-write=no")
    sys.stdout.write(crontab_entry(home.parent, home, args.at, train, args.propose) + "\n")
    return 0


def _labels(given: list[str] | None) -> tuple[str, ...]:
    labels = tuple(given or ["skillopt"])
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise ProposeError(f"--label: {label!r} has no text, a comma, or over 50 characters")
    return labels


def training_command(caps: Mapping[str, str], arguments: str, *own: str) -> list[str]:
    """How a job that nobody watches calls pytest.

    Args:
        caps: name of a spending cap (``max-calls``) to its value; ``""`` where it is not set.
        arguments: further arguments of pytest as one string, quoted as in a shell.
        own: arguments that come before those.

    Raises:
        ProposeError: no cap that bounds anything, a cap that is no number, open quotes.
    """
    given = {name: value.strip() for name, value in caps.items() if value.strip()}
    for name, value in given.items():
        if not _is_positive(value):
            raise ProposeError(f"--{name}: {value!r} is no number above 0")
    if not given:
        names = ", ".join(f"--{name}" for name in caps)
        raise ProposeError(f"a job needs a spending cap, at least one of {names}")
    flags = [f"--skillopt-{name}={value}" for name, value in given.items()]
    # Last, so that no argument lifts a cap.
    return [
        sys.executable,
        "-m",
        "pytest",
        "--skillopt-train",
        *own,
        *_split("--args", arguments),
        *flags,
    ]


def training_outputs(result: Result) -> dict[str, str]:
    """``accepted``, ``pass-rate-before`` and ``pass-rate-after`` of a run.

    Pass rates are of the whole suite in [0, 1], of the first skill that was bettered, else of the
    first that was measured; empty where nothing was measured.
    """
    accepted = [skill for skill in result.skills if skill.status == "accepted"]
    measured = [skill for skill in accepted or result.skills if skill.suite]
    suite = measured[0].suite if measured else None
    after = suite.after if suite else None
    return {
        "accepted": "true" if accepted else "false",
        "pass-rate-before": f"{suite.before.rate:.4f}" if suite else "",
        "pass-rate-after": f"{after.rate:.4f}" if after else "",
    }


def write_outputs(values: Mapping[str, str]) -> None:
    """Append to ``$GITHUB_OUTPUT`` where there is one."""
    # A delimiter that no value can hold: a line of one would set another output.
    end = f"end-{secrets.token_hex(16)}"
    _append("GITHUB_OUTPUT", "".join(f"{k}<<{end}\n{v}\n{end}\n" for k, v in values.items()))


def _append(variable: str, text: str) -> None:
    """Add to the file that an environment variable names, if it does."""
    if path := os.environ.get(variable):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)


def crontab_entry(project: Path, home: Path, at: str, train: list[str], propose: str) -> str:
    """The line of a crontab that trains a project every night and proposes what was found.

    It trains with ``--skillopt-write=no``: the skill file stays as it is, and the next night starts
    from what was merged, not from what was proposed.

    ``project`` and its ``.skillopt``, ``home``, are absolute; ``at`` is a local time ``HH:MM``,
    ``train`` a :func:`training_command`, ``propose`` arguments of that command, as one string.

    Raises:
        ProposeError: no time of day, open quotes, or a path that a crontab cannot hold.
    """
    match = _TIME.fullmatch(at)
    if match is None:
        raise ProposeError(f"{at!r} is no time of day: write HH:MM, e.g. 03:17")
    tool = [sys.executable, "-m", "pytest_skillopt", "propose", *_split("--propose", propose)]
    log = home / LOG
    command = (
        f"cd {shlex.quote(str(project))} && mkdir -p {shlex.quote(str(log.parent))} && "
        f"{{ {shlex.join(train)} && {shlex.join(tool)}; }} >>{shlex.quote(str(log))} 2>&1"
    )
    if "\n" in command or "\r" in command:
        raise ProposeError(f"a line break cannot stand in a crontab: {command!r}")
    # cron makes a line break of every % that has no backslash, whatever quotes it is in.
    return f"{int(match[2])} {int(match[1])} * * * " + command.replace("%", "\\%")


def _split(option: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ProposeError(f"{option}: {error}: {text!r}") from None


def _is_positive(value: str) -> bool:
    try:
        return 0 < float(value) < math.inf
    except ValueError:
        return False
