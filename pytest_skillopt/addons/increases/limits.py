"""The comparison of what a rollout takes with the bounds."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from pytest_skillopt.addons.increases.settings import percent
from pytest_skillopt.skill.document import SKILL_FILE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt import SkillTask
    from pytest_skillopt.addons.increases.settings import IncreaseSettings
    from pytest_skillopt.run.result import CostRow

_DOCUMENT_INCREASE = 20.0
"""Percent that studies found context files to cost without any gain: docs/harnesses.md."""


def too_dear(
    cost: CostRow, settings: IncreaseSettings, skill: str, tasks: Sequence[SkillTask]
) -> str:
    """Say by how much a rollout got dearer or slower than the user allows; empty if it did not.

    An empty setting allows any increase; only the tokens of a document that coding agents read in
    every session may then rise by 20 %.
    """
    most_tokens = percent(settings.max_cost_increase)
    always_read = PurePosixPath(skill).name != SKILL_FILE and any(task.agent for task in tasks)
    if always_read and not settings.max_cost_increase.strip():
        most_tokens = _DOCUMENT_INCREASE
    most_seconds = percent(settings.max_time_increase)
    for name, most, unit, old, new, form in (
        ("cost", most_tokens, "tokens", cost.tokens_before, cost.tokens_after, ",.0f"),
        ("time", most_seconds, "seconds", cost.seconds_before, cost.seconds_after, ".2g"),
    ):
        more = 100 * (new / old - 1) if old and new is not None else 0.0
        if more > most:
            return (
                f"a rollout takes {more:.0f} % more {unit} ({old:{form}} before, {new:{form}} "
                f"after), at most {most:g} % is allowed (skillopt_max_{name}_increase)"
            )
    return ""
