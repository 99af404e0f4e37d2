"""``skillopt_max_cost_increase`` and ``skillopt_max_time_increase``: refuse a dearer skill."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.addon import AddOn
from pytest_skillopt.settings import AddOnSettings, setting

if TYPE_CHECKING:
    from pytest_skillopt.search.final_comparison import Measured
    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.settings import Settings

_DOCUMENT_INCREASE = 20.0
"""Percent that studies found context files to cost without any gain: docs/harnesses.md."""


@dataclass(frozen=True, slots=True)
class IncreaseSettings(AddOnSettings):
    """Settings of the add-on."""

    max_cost_increase: str = setting("", "largest allowed increase in tokens per rollout, e.g. 20%")
    max_time_increase: str = setting("", "largest allowed increase in seconds per rollout")

    def validate(self, settings: Settings) -> None:
        """Raise UsageError for a setting that is not a percentage."""
        for name in ("max_cost_increase", "max_time_increase"):
            given = getattr(self, name)
            with suppress(ValueError):
                if _percent(given) >= 0:
                    continue
            raise pytest.UsageError(f"skillopt_{name}: {given!r} is not a share such as 20%")


def _objection(state: TrainingState, measured: Measured) -> str:
    """Say by how much a rollout got dearer or slower than the user allows; empty if it did not.

    An empty setting allows any increase; only the tokens of a document that coding agents read in
    every session may then rise by 20 %.
    """
    from pytest_skillopt.search.outcome import cost_of
    from pytest_skillopt.skill.document import SKILL_FILE

    cost = cost_of(measured.before, measured.after)
    if cost is None:
        return ""
    settings = state.settings.of(IncreaseSettings)
    most_tokens = _percent(settings.max_cost_increase)
    is_skill = state.skill.rpartition("/")[2] == SKILL_FILE
    always_read = not is_skill and any(task.agent for task in state.suite)
    if always_read and not settings.max_cost_increase.strip():
        most_tokens = _DOCUMENT_INCREASE
    most_seconds = _percent(settings.max_time_increase)
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


def _percent(given: str) -> float:
    """Read an increase in percent, 20 for ``20%``; an empty one is infinite."""
    return float(given.strip().removesuffix("%")) if given.strip() else math.inf


ADDON = AddOn(settings=IncreaseSettings, objection=_objection)
