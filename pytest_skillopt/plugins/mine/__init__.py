"""Commands ``init``, ``mine`` and ``handoff``, and the model ``handoff``."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    import pytest

    from pytest_skillopt import Model, Role


def pytest_skillopt_client(config: pytest.Config, role: Role) -> Model | None:
    """Make the model for a role set to ``handoff``: a person, or an agent that a person uses."""
    from pytest_skillopt.model.config import provider_of
    from pytest_skillopt.model.roles import Models

    models = Models.of(config)
    if provider_of(models.settings, role) != "handoff":
        return None
    from pytest_skillopt.plugins.mine.handoff import Handoff
    from pytest_skillopt.run.directory import Home

    reporter = config.pluginmanager.get_plugin("terminalreporter")
    home = Home(config.rootpath / models.settings.dir)
    return Handoff(role, home, reporter.write_line if reporter else print, models.throttle)


def pytest_skillopt_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the commands; each sets ``handle``, a function from the arguments to an exit code."""
    _add_drafting(commands)
    parser = commands.add_parser("handoff", help="list waiting prompts, or answer one")
    parser.add_argument(
        "key", nargs="?", default="", metavar="KEY", help="prompt to print or to answer"
    )
    parser.add_argument("--answer", default="", metavar="FILE", help="answer to KEY; -: stdin")
    parser.set_defaults(handle=_handoff)


def _handoff(args: argparse.Namespace) -> int:
    from pytest_skillopt.plugins.mine.handoff import command
    from pytest_skillopt.run.past import find_home

    return command(find_home(Path.cwd()).path / "handoff", args.key, args.answer)


def _add_drafting(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("init", help="draft a starter suite for a skill")
    _add_common(parser, "init", "tests/test_{skill}.py", 15)
    parser.add_argument("--run", action="store_true", help="run the drafts once (paid calls)")
    parser = commands.add_parser("mine", help="draft tests from transcripts of past sessions")
    parser.add_argument("source", type=Path, metavar="PATH", help="transcript, or folder of them")
    _add_common(parser, "mine", "tests/test_{skill}_mined.py", 20)
    parser.set_defaults(run=False)


def _add_common(parser: argparse.ArgumentParser, name: str, output: str, most: int) -> None:
    add = parser.add_argument
    text = "SKILL.md or its folder"
    add("skill", type=Path, metavar="SKILL", nargs="?", default=Path(), help=text)
    add("--output", metavar="FILE", help=f"file to write (default: {output})")
    text = f"largest number of drafts (default: {most})"
    add("--tests", type=int, default=most, metavar="N", help=text)
    add("--yes", action="store_true", help="do not ask for confirmation")
    parser.set_defaults(handle=partial(_draft, name, output))


def _draft(name: str, output: str, args: argparse.Namespace) -> int:
    from pytest_skillopt.errors import UserError
    from pytest_skillopt.plugins.mine import drafts
    from pytest_skillopt.run.project import configured

    path: Path = args.skill.resolve()
    skill = path / "SKILL.md" if path.is_dir() else path
    if not skill.is_file():
        raise UserError(f"there is no skill at {path}: name a SKILL.md or its folder")
    draft = drafts.init if name == "init" else drafts.mine
    own = re.sub(r"\W+", "_", skill.parent.name.lower()).strip("_") or "skill"
    file = Path((args.output or output).replace("{skill}", own)).resolve()
    return configured(lambda config: draft(config, skill, file, args))
