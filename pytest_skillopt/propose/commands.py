"""The commands ``propose``, ``job``, ``outputs``, ``schedule`` and ``unschedule``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.propose import schedule
from pytest_skillopt.propose.errors import ProposeError
from pytest_skillopt.propose.outputs import (
    NOTHING_TRAINED,
    training_command,
    training_outputs,
    write_outputs,
    write_summary,
)
from pytest_skillopt.propose.publish import Options, Outcome, Publisher
from pytest_skillopt.report.runs import find_home, pick_run
from pytest_skillopt.run.directory import RunError
from pytest_skillopt.untrusted import no_command, shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

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
    _add_outputs(commands)
    _add_schedule(commands)


def _add_propose(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("propose", help="open a pull request for what a training found")
    _add_proposal_options(parser)
    parser.set_defaults(handle=_guarded(_propose))


def _add_job(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "job", help="train as a CI job does: with a spending cap, setting the job's outputs"
    )
    _add_training_options(parser)
    parser.set_defaults(handle=_guarded(_job))


def _add_training_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-calls", metavar="N", default="", help="most paid model calls")
    parser.add_argument("--max-cost", metavar="USD", default="", help="most US dollars")
    parser.add_argument("--max-time", metavar="SECONDS", default="", help="most seconds")
    parser.add_argument(
        "--args", metavar="ARGUMENTS", default="", help="further arguments of pytest, one string"
    )


def _add_outputs(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("outputs", help="tell GitHub Actions how a run ended")
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="id of a run or its start (default: the latest)"
    )
    parser.set_defaults(handle=_guarded(_outputs))


def _add_schedule(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("schedule", help="train and propose every night, with cron")
    parser.add_argument(
        "--at", metavar="HH:MM", default="03:17", help="local time of day (default: 03:17)"
    )
    _add_training_options(parser)
    _add_proposal_options(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(handle=_guarded(_schedule))
    parser = commands.add_parser("unschedule", help="take this project out of the crontab")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(handle=_guarded(_unschedule))


def _add_proposal_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="the proposal (default: proposal in the nearest .skillopt)",
    )
    parser.add_argument(
        "--base",
        metavar="BRANCH",
        default="",
        help="where requests go (default: the one checked out)",
    )
    parser.add_argument(
        "--remote", metavar="NAME", default="origin", help="the git remote (default: origin)"
    )
    parser.add_argument(
        "--forge",
        choices=("auto", "github", "gitlab", "none"),
        default="auto",
        help="what the remote is (default: as CI or the remote's host says)",
    )
    parser.add_argument(
        "--no-forge",
        dest="forge",
        action="store_const",
        const="none",
        help="push the branch and print the text of the request",
    )
    parser.add_argument("--ready", action="store_true", help="no draft")
    parser.add_argument(
        "--label",
        metavar="LABEL",
        action="append",
        help="label of the request; may be repeated (default: skillopt)",
    )


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
        _say(
            f"nothing to propose: there is no {options.proposal}, which the latest training "
            "leaves if it accepted an edit, in a git repository"
        )
        write_outputs({"pull-request-url": ""})
        return 0
    root = Path.cwd() if args.dir else home.path.parent
    with Publisher(root, options, dict(os.environ)) as publisher:
        outcomes = publisher.publish()
        changed = publisher.left_out()
    for outcome in outcomes:
        _report(outcome, with_text=args.forge == "none")
    proposed = {outcome.skill.path for outcome in outcomes}
    if left_out := [name for name in changed if name not in proposed]:
        _say(f"not part of it: uncommitted changes of {', '.join(sorted(left_out)[:5])}")
    open_ = [o.url for o in outcomes if o.url and o.action in ("create", "update", "keep", "human")]
    write_outputs({"pull-request-url": open_[0] if open_ else ""})
    return 0


def _report(outcome: Outcome, *, with_text: bool) -> None:
    sentence = _SENTENCES[outcome.action]
    _say(sentence.format(path=outcome.skill.path, branch=outcome.request.branch))
    if outcome.url:
        _say(f"  {outcome.url}")
    if with_text and outcome.action in ("create", "update", "keep"):
        # Not through shown: the body has been made inert by characters that it would take out.
        sys.stdout.write(no_command(f"\n{outcome.request.title}\n\n{outcome.request.body}\n"))


def _job(args: argparse.Namespace) -> int:
    command = training_command(_caps(args), args.args)
    home = find_home(Path.cwd())
    there = set(home.run_names())
    code = subprocess.run(command).returncode
    new = [name for name in home.run_names() if name not in there]
    try:
        if new:
            _tell(new[-1])
            return code
    except RunError as error:
        sys.stderr.write(f"pytest-skillopt: {shown(str(error))}\n")
    write_outputs(NOTHING_TRAINED)
    return code


def _caps(args: argparse.Namespace) -> dict[str, str]:
    return {"max-calls": args.max_calls, "max-cost": args.max_cost, "max-time": args.max_time}


def _outputs(args: argparse.Namespace) -> int:
    _tell(args.run)
    return 0


def _tell(run: str | None) -> None:
    from pytest_skillopt.report.markdown import step_summary

    _, result = pick_run(find_home(Path.cwd()), run)
    values = training_outputs(result)
    if not write_outputs(values):
        for name, value in values.items():
            _say(f"{name}={value}")
    write_summary(step_summary(result))


def _schedule(args: argparse.Namespace) -> int:
    home = find_home(Path.cwd())
    project = home.path.parent.resolve()
    block = schedule.entry(
        project,
        home.path.resolve(),
        args.at,
        train=training_command(_caps(args), args.args, "--skillopt-write=no"),
        propose=_proposal_arguments(args),
    )
    old = schedule.read_crontab()
    new = schedule.with_entry(old, project, block)
    if new == old:
        _say("this very entry is installed already")
        return 0
    _say(block.rstrip("\n"))
    _say(
        "cron has an environment of its own: set the API key and the forge's token at the top of "
        "the crontab (`crontab -e`)."
    )
    return _install(new, "install this entry", args.yes)


def _unschedule(args: argparse.Namespace) -> int:
    project = find_home(Path.cwd()).path.parent.resolve()
    old = schedule.read_crontab()
    new = schedule.with_entry(old, project, "")
    if new == old:
        _say(f"the crontab has no entry for {project}")
        return 0
    return _install(new, f"take {project} out of the crontab", args.yes)


def _install(crontab: str, what: str, yes: bool) -> int:
    if not yes and not _confirmed(what):
        _say("nothing was changed")
        return 1
    schedule.install(crontab)
    _say("done")
    return 0


def _confirmed(what: str) -> bool:
    if not sys.stdin.isatty():
        raise ProposeError(f"to {what} without being asked, give --yes")
    return input(f"{what}? [y/N] ").strip().lower() in ("y", "yes")


def _proposal_arguments(args: argparse.Namespace) -> list[str]:
    """The options of ``propose`` that differ from their defaults, as a cron job repeats them."""
    found = ["--dir", str(args.dir.resolve())] if args.dir else []
    if args.base:
        found += ["--base", args.base]
    if args.remote != "origin":
        found += ["--remote", args.remote]
    if args.forge != "auto":
        found += ["--forge", args.forge]
    if args.ready:
        found.append("--ready")
    for label in args.label or ():
        found += ["--label", label]
    return found


def _labels(given: list[str] | None) -> tuple[str, ...]:
    labels = tuple(given or ["skillopt"])
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise ProposeError(f"--label: {label!r} has no text, a comma, or over 50 characters")
    return labels


def _guarded(
    command: Callable[[argparse.Namespace], int],
) -> Callable[[argparse.Namespace], int]:
    """Turn what a user can mend into a message and exit code 1."""

    def run(args: argparse.Namespace) -> int:
        try:
            return command(args)
        except ProposeError as error:
            sys.stderr.write(f"pytest-skillopt: error: {shown(str(error))}\n")
            return 1

    return run


def _say(text: str) -> None:
    sys.stdout.write(f"{shown(text)}\n")
