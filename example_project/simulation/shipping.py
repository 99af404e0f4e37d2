"""The skill of releases on GitHub: the agent runs commands, which the tests answer.

It follows the rules that its skill states; what it is not told it does by chance.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation.server import Request

CAUSES = {
    "pull requests that block": (
        "Before a release, list the open pull requests with the label blocker; if there is one, "
        "release nothing."
    ),
    "at the checks of main": (
        "Before a release, list the last run of the checks on main; if it failed, release nothing."
    ),
    "that exists should stay": "If the release exists already, stop, and never delete it.",
}
"""Rules that a thoughtful person would make of failures, by words of their messages."""
_STATED = {
    "blocker": r"\blist\b[^.\n]*\bblocker",
    "checks": r"\blist\b[^.\n]*\bchecks",
    "existing": r"\bexists\b[^.\n]*\b(?:stop|never)",
}
_BEFORE = {
    "blocker": ("gh pr list --label blocker --state open", r"#\d"),
    "checks": ("gh run list --branch main --limit 1", "failure"),
}
"""The command that a rule has the agent run first, and what in its result prevents a release."""
_UNTOLD, _LAPSES = 0.15, 0.01
"""Chances that the agent does what no rule says, and that it forgets a rule."""


def answer(request: Request) -> tuple[str, list[dict[str, Any]]]:
    """Return the agent's next turn: a command, or what it has done."""
    found = re.search(r"\d+\.\d+\.\d+", request.prompt)
    if found is None:
        return "Which version is to be released?", []
    results = [m["content"] for m in request.messages if m["role"] == "tool"]
    for rule, (command, obstacle) in _BEFORE.items():
        if not _follows(request, rule):
            continue
        if not results:
            return _run(command)
        if re.search(obstacle, results.pop(0)):
            return f"Version {found[0]} is not released: {rule}.", []
    create = f"gh release create v{found[0]}"
    if not results:
        return _run(create)
    if "already exists" in results[0] and not _follows(request, "existing"):
        again = (f"gh release delete v{found[0]} --yes", create)
        if len(results) <= len(again):
            return _run(again[len(results) - 1])
    return f"Version {found[0]}: {results[-1].strip()}", []


def _follows(request: Request, rule: str) -> bool:
    if re.search(_STATED[rule], request.system.lower()):
        return request.uniform(f"lapse/{rule}") >= _LAPSES
    return request.uniform(f"untold/{rule}") < _UNTOLD


def _run(command: str) -> tuple[str, list[dict[str, Any]]]:
    function = {"name": "run", "arguments": json.dumps({"command": command})}
    return "", [{"id": "call_run", "type": "function", "function": function}]
