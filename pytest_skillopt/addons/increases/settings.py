"""Settings of the bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.settings import setting

if TYPE_CHECKING:
    from pytest_skillopt.settings import Settings


@dataclass(frozen=True, slots=True)
class IncreaseSettings:
    """Settings of the add-on."""

    max_cost_increase: str = setting("", "largest allowed increase in tokens per rollout, e.g. 20%")
    max_time_increase: str = setting("", "largest allowed increase in seconds per rollout")

    def validate(self, settings: Settings) -> None:
        """Raise UsageError for a setting that is not a percentage."""
        for name in ("max_cost_increase", "max_time_increase"):
            given = getattr(self, name)
            try:
                is_share = percent(given) >= 0
            except ValueError:
                is_share = False
            if not is_share:
                raise pytest.UsageError(f"skillopt_{name}: {given!r} is not a share such as 20%")


def percent(given: str) -> float:
    """Read an increase in percent, 20 for ``20%``; an empty one is infinite."""
    return float(given.strip().removesuffix("%")) if given.strip() else math.inf
