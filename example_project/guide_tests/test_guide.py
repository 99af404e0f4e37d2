"""The plugin's own skill for coding agents: does an agent with it give the right command?"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skill_task(skill=".agents/skills/pytest-skillopt/SKILL.md")
FREE = {
    "See the plan of a training and its price, without any model call.": (
        "pytest --skillopt-train --collect-only"
    ),
    "Show every task and every edit of the latest run.": "pytest-skillopt show -v",
    "See the change of the last training as a patch.": "pytest-skillopt diff",
    "Look at the pull request for a change, without opening it.": (
        "pytest-skillopt propose --dry-run"
    ),
    "The user agrees: open the pull request as a draft.": "pytest-skillopt propose",
    "Check settings, keys and skills with one tiny call of each model.": "pytest-skillopt doctor",
}
PAID = {
    "Measure the pass rate of the skill as it is.": "pytest --skillopt",
    "Learn how far the figures of a skill move by chance.": "pytest --skillopt-aa",
    "Compare the skill with having no skill at all.": "pytest --skillopt-compare none",
    "Check that the edited skill is not worse than the committed version.": (
        "pytest --skillopt-check=HEAD"
    ),
    "Train the skill with a spending cap of five dollars.": "pytest --skillopt-train",
    "Continue the training that was interrupted.": (
        "pytest --skillopt-train --skillopt-resume=latest"
    ),
    "Train the skill without writing the file, only proposing.": (
        "pytest --skillopt-train --skillopt-write=no"
    ),
    "I wrote a better text to another file: have my change judged.": (
        "pytest --skillopt-try=better.md"
    ),
    "Make a long skill shorter without losing passed tasks.": "pytest-skillopt shorten",
}


def commands(reply: str) -> list[list[str]]:
    """The command lines in a reply, in words."""
    lines = re.findall(r"`+([^`\n]+)`", reply)
    return [shlex.split(line) for line in lines if line.startswith("pytest")]


@pytest.mark.parametrize("wish", [*FREE, *PAID])
def test_command(skill_agent: Callable[[str], str], wish: str) -> None:
    """Names the command for a wish, with all options that it needs."""
    reply = skill_agent(f"{wish} Answer with the command line, in backticks.")
    wanted = (FREE | PAID)[wish].split()
    fits = [words for words in commands(reply) if set(wanted) <= set(words)]
    assert fits, f"a command with {wanted} is wanted: {reply}"


@pytest.mark.parametrize("wish", PAID)
def test_cap(skill_agent: Callable[[str], str], wish: str) -> None:
    """Gives every command that costs something a cap."""
    reply = skill_agent(f"{wish} Answer with the command line, in backticks.")
    capped = [any(w.startswith("--skillopt-max-") for w in words) for words in commands(reply)]
    assert capped, f"a command is wanted: {reply}"
    assert all(capped), f"a paid command has no cap (--skillopt-max-cost): {reply}"
