"""The functions of the core's modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.compare.aa import aa
from pytest_skillopt.compare.check import check
from pytest_skillopt.compare.compare import compare
from pytest_skillopt.compare.drift import drift
from pytest_skillopt.compare.tries import try_change
from pytest_skillopt.modes.measure import evaluate
from pytest_skillopt.modes.train import train

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_skillopt import Result
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run

OWN: Mapping[str, Callable[[Run, Display], Result]] = {
    "evaluate": evaluate,
    "train": train,
    "aa": aa,
    "compare": compare,
    "drift": drift,
    "check": check,
    "try": try_change,
}
"""Functions by the names of their modes."""
