"""Command-line parsers of ``init``, ``mine`` and ``handoff``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


_STARTER = "tests/test_{skill}.py"


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the commands; each sets ``handle``, a function from the arguments to an exit code."""
    _add_drafting(commands)
    parser = commands.add_parser("handoff", help="list waiting prompts, or answer one")
    parser.add_argument(
        "key", nargs="?", default="", metavar="KEY", help="prompt to print or to answer"
    )
    parser.add_argument("--answer", default="", metavar="FILE", help="answer to KEY; -: stdin")
    parser.set_defaults(handle=_handoff)


def _handoff(args: argparse.Namespace) -> int:
    from pytest_skillopt.addons.mine.handoff import command
    from pytest_skillopt.report.runs import find_home

    return command(find_home(Path.cwd()).path / "handoff", args.key, args.answer)


def _add_drafting(commands: argparse._SubParsersAction[Any]) -> None:
    text = "draft a starter suite for a skill, or grow a small evals.json"
    parser = commands.add_parser("init", help=text)
    _add_common(parser, _STARTER, 15)
    parser.set_defaults(output=None)
    parser.add_argument("--run", action="store_true", help="run the drafts once (paid calls)")
    parser.set_defaults(handle=_init)
    parser = commands.add_parser("mine", help="draft tests from transcripts of past sessions")
    parser.add_argument("source", type=Path, metavar="PATH", help="transcript, or folder of them")
    _add_common(parser, "tests/test_{skill}_mined.py", 20)
    text = "use only the 20 requests that are most like this text"
    parser.add_argument("--like", metavar="TEXT", default="", help=text)
    text = "variations of each test, skipped until you have reviewed them (default: 0)"
    parser.add_argument("--variations", type=int, default=0, metavar="N", help=text)
    parser.set_defaults(handle=_mine)


def _add_common(parser: argparse.ArgumentParser, output: str, most: int) -> None:
    parser.add_argument(
        "skill",
        type=Path,
        metavar="SKILL",
        nargs="?",
        default=Path(),
        help="SKILL.md or its folder",
    )
    parser.add_argument(
        "--output", metavar="FILE", default=output, help=f"file to write (default: {output})"
    )
    text = f"largest number of drafts (default: {most})"
    parser.add_argument("--tests", type=int, default=most, metavar="N", help=text)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def _init(args: argparse.Namespace) -> int:
    from pytest_skillopt.addons.mine import nearest_skill
    from pytest_skillopt.addons.mine.drafts import init
    from pytest_skillopt.addons.project import configured

    skill = nearest_skill(args.skill.resolve())
    named = args.output is not None
    args.output = args.output or _STARTER
    return configured(
        lambda config: init(
            config,
            skill,
            _output(args, skill),
            most=args.tests,
            yes=args.yes,
            run=args.run,
            grow=not named,
        )
    )


def _mine(args: argparse.Namespace) -> int:
    from pytest_skillopt.addons.mine import nearest_skill
    from pytest_skillopt.addons.mine.drafts import mine
    from pytest_skillopt.addons.project import configured

    skill = nearest_skill(args.skill.resolve())
    source = args.source.resolve()
    return configured(
        lambda config: mine(
            config,
            skill,
            source,
            _output(args, skill),
            most=args.tests,
            yes=args.yes,
            like=args.like,
            variations=max(0, args.variations),
        )
    )


def _output(args: argparse.Namespace, skill: Path) -> Path:
    name = re.sub(r"\W+", "_", skill.parent.name.lower()).strip("_") or "skill"
    return Path(args.output.replace("{skill}", name)).resolve()
