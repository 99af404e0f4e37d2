"""Mode ``--skillopt-drift``, and ``pytest-skillopt show --history``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_skillopt import Result
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run


def _drift(run: Run, display: Display) -> Result:
    from pytest_skillopt.addons.drift.measure import drift

    return drift(run, display)


def history(folder: Path) -> Iterator[str]:
    """Yield a line for each receipt of the project."""
    from pytest_skillopt.addons.drift.receipts import lines

    return lines(folder)


MODES = {"drift": ("tell if the skill still helps today's model", _drift)}
