"""Command ``pytest-skillopt skill install``: give a project's coding agents the plugin's skill."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.addon import AddOn

if TYPE_CHECKING:
    import argparse

SOURCE = Path(__file__).with_name("pytest-skillopt")
"""Folder of the skill."""
_COMMON = ".agents/skills"
PLACES = {"claude": ".claude/skills"} | dict.fromkeys(
    ("codex", "copilot", "gemini", "opencode", "pi", "qwen"), _COMMON
)
"""Folder of a project in which each agent looks for skills."""


def _add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    text = "teach coding agents in this project to use pytest-skillopt"
    own = commands.add_parser("skill", help=text)
    actions = own.add_subparsers(metavar="ACTION", required=True)
    install = actions.add_parser("install", help="copy the skill into this project")
    text = "agent to install it for; may be repeated (default: all that look in .agents/skills)"
    install.add_argument("--for", dest="agents", action="append", choices=PLACES, help=text)
    install.add_argument("--force", action="store_true", help="replace a copy that differs")
    install.set_defaults(handle=_install)


def _install(args: argparse.Namespace) -> int:
    from pytest_skillopt.cli import fail

    places = dict.fromkeys(PLACES[agent] for agent in args.agents or ("codex",))
    targets = [Path(place, SOURCE.name, "SKILL.md") for place in places]
    ours = (SOURCE / "SKILL.md").read_bytes()
    try:
        found = {target: target.read_bytes() for target in targets if target.exists()}
        changed = [target for target, theirs in found.items() if theirs != ours]
        if changed and not args.force:
            return fail(f"{changed[0]} differs from the installed version; --force replaces it")
        for target in targets:
            if target in found and target not in changed:
                print(f"{target} is up to date")
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(ours)
            print(f"wrote {target}")
    except OSError as error:
        return fail(f"skill install: {error}")
    return 0


ADDON = AddOn(add_commands=_add_commands)
