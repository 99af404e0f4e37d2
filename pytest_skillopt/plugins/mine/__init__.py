"""Commands ``init`` and ``handoff``, and the model ``handoff``."""

from __future__ import annotations

import os
import re
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
    tell = reporter.write_line if reporter else print
    return Handoff(role, home, tell, models.throttle)


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

    return command(find_home().path / "handoff", args.key, args.answer)


def _add_drafting(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("init", help="draft a starter suite for a skill")
    add = parser.add_argument
    text = "SKILL.md or its folder"
    add("skill", type=Path, metavar="SKILL", nargs="?", default=Path(), help=text)
    text = "draft from a transcript of past sessions, or from a folder of them"
    add("--from", dest="source", type=Path, metavar="PATH", help=text)
    text = "file to write (default: tests/test_SKILL.py, with --from tests/test_SKILL_mined.py)"
    add("--output", metavar="FILE", help=text)
    add("--tests", type=int, default=15, metavar="N", help="most drafts (default: 15)")
    add("--yes", action="store_true", help="do not ask for confirmation")
    parser.set_defaults(handle=_draft)


def _draft(args: argparse.Namespace) -> int:
    from pytest_skillopt.errors import UsageError
    from pytest_skillopt.plugins.mine import drafts
    from pytest_skillopt.run.project import with_model

    # Path.resolve raises RuntimeError at links in a circle, before Python 3.13.
    path = Path(os.path.realpath(args.skill))
    skill = path / "SKILL.md" if path.is_dir() else path
    if not skill.is_file():
        raise UsageError(f"there is no skill at {path}: name a SKILL.md or its folder")
    ending = "_mined" if args.source else ""
    own = re.sub(r"\W+", "_", skill.parent.name.lower()).strip("_") or "skill"
    file = Path(os.path.realpath(args.output or f"tests/test_{own}{ending}.py"))
    draft = drafts.mine if args.source else drafts.init
    drafts.refuse_place(file)
    return with_model("optimizer", lambda config, model: draft(config, model, skill, file, args))
