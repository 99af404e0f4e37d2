"""The learning: data in, data out. Knows neither pytest nor how rollouts are run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_skillopt.optimizer.outcome import TrainOutcome
    from pytest_skillopt.optimizer.parameters import TrialParameters
    from pytest_skillopt.optimizer.stages import Stages
    from pytest_skillopt.optimizer.trainer import Trainer

_HOMES = {
    "Stages": "stages",
    "TrainOutcome": "outcome",
    "Trainer": "trainer",
    "TrialParameters": "parameters",
}

__all__ = ["Stages", "TrainOutcome", "Trainer", "TrialParameters"]


def __getattr__(name: str) -> Any:
    """Imported when first used: the gate alone needs nothing but the standard library."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
