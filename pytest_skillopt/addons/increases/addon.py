"""``skillopt_max_cost_increase`` and ``skillopt_max_time_increase``: refuse a dearer skill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.addons.increases.settings import IncreaseSettings

if TYPE_CHECKING:
    from pytest_skillopt.search.final_comparison import Measured
    from pytest_skillopt.search.state import TrainingState

SETTINGS = IncreaseSettings


def objection(state: TrainingState, measured: Measured) -> str:
    """Say by how much a rollout got dearer or slower than the user allows."""
    from pytest_skillopt.addons.increases.limits import too_dear
    from pytest_skillopt.search.outcome import cost_of

    cost = cost_of(measured.before, measured.after)
    settings = state.settings.of(IncreaseSettings)
    return too_dear(cost, settings, state.skill, state.suite) if cost else ""
