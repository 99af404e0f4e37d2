"""The commands ``propose``, ``job`` and ``schedule``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.propose import ProposeError, jobs
from pytest_skillopt.propose.publish import Options, Outcome, Publisher
from pytest_skillopt.report.runs import find_home, pick_run
from pytest_skillopt.run.directory import RunError
from pytest_skillopt.untrusted import environment, no_command, shown

if TYPE_CHECKING:
    import argparse

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
        jobs.write_outputs({"pull-request-url": ""})
        return 0
    root = Path.cwd() if args.dir else home.path.parent
    outcomes = Publisher(root, options, environment()).publish()
    for outcome in outcomes:
        _report(outcome, with_text=args.forge == "none")
    open_ = [o.url for o in outcomes if o.url and o.action in ("create", "update", "keep", "human")]
    jobs.write_outputs({"pull-request-url": open_[0] if open_ else ""})
    return 0


def _report(outcome: Outcome, *, with_text: bool) -> None:
    sentence = _SENTENCES[outcome.action]
    said = sentence.format(path=outcome.skill.path, branch=outcome.request.branch)
    sys.stdout.write(shown(f"{said}\n  {outcome.url}" if outcome.url else said) + "\n")
    if with_text and outcome.action in ("create", "update", "keep"):
        # Not through shown: the body has been made inert by characters that it would take out.
        sys.stdout.write(no_command(f"\n{outcome.request.title}\n\n{outcome.request.body}\n"))


def _job(args: argparse.Namespace) -> int:
    command = jobs.training_command(_caps(args), args.args)
    home = find_home(Path.cwd())
    there = set(home.run_names())
    code = subprocess.run(command).returncode
    new = [name for name in home.run_names() if name not in there]
    values = jobs.NOTHING_TRAINED
    try:
        if new:
            from pytest_skillopt.report.markdown import step_summary

            _, result = pick_run(home, new[-1])
            values = jobs.training_outputs(result)
            jobs.write_summary(step_summary(result))
    except RunError as error:
        sys.stderr.write(f"pytest-skillopt: {shown(str(error))}\n")
    jobs.write_outputs(values)
    return code


def _caps(args: argparse.Namespace) -> dict[str, str]:
    return {"max-calls": args.max_calls, "max-cost": args.max_cost, "max-time": args.max_time}


def _schedule(args: argparse.Namespace) -> int:
    home = find_home(Path.cwd()).path.resolve()
    train = jobs.training_command(_caps(args), args.args, "--skillopt-write=no")
    sys.stdout.write(jobs.crontab_entry(home.parent, home, args.at, train, args.propose) + "\n")
    return 0


def _labels(given: list[str] | None) -> tuple[str, ...]:
    labels = tuple(given or ["skillopt"])
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise ProposeError(f"--label: {label!r} has no text, a comma, or over 50 characters")
    return labels
