"""The functions of the core's modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.compare.compare import COMPARISONS, compare
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
    **dict.fromkeys(COMPARISONS, compare),
}
"""Functions by the names of their modes."""
