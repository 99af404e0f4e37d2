"""Disguised text, addresses, shell commands, and words of a task in what an edit adds.

An instruction that sends data away, or fetches instructions, must name an address. An address in
the skill or in the tasks is the user's own; any other is refused, whatever its sentence says. A
program cannot tell good commands from bad ones: new commands are shown to the reader. An edit with
words of a particular task instead of a rule is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_skillopt import Edit, LintRule, Refusal, SkillTask


def pytest_skillopt_lint_rules() -> Sequence[LintRule]:
    """Return the rules on the text that a file adds."""
    from pytest_skillopt.plugins.leaks.rules import RULES

    return RULES


def pytest_skillopt_check_edit(
    tasks: Sequence[SkillTask], skill: str
) -> Callable[[Edit, str], Refusal | None]:
    """Return a check for words of a task."""
    from pytest_skillopt.plugins.leaks.task_words import LeakIndex

    return LeakIndex(tasks, skill)
