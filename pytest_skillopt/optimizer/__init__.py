"""The learning: data in, data out. Knows neither pytest nor how rollouts are run."""

from __future__ import annotations

from pytest_skillopt.optimizer.parameters import TrialParameters
from pytest_skillopt.optimizer.stages import Stages
from pytest_skillopt.optimizer.trainer import Trainer, TrainOutcome

__all__ = ["Stages", "TrainOutcome", "Trainer", "TrialParameters"]
