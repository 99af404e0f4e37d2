"""Mode ``--skillopt-drift``, and ``pytest-skillopt show --history``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.options import Mode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def history(folder: Path) -> Iterator[str]:
    """Yield a line for each receipt of the project."""
    from pytest_skillopt.addons.drift.receipts import lines

    return lines(folder)


MODES = (
    Mode(
        name="drift",
        help="tell if the skill still helps today's model",
        function="pytest_skillopt.addons.drift.measure:drift",
        doing="measuring the drift of",
        samples=lambda task, settings: 4 * settings.final_rollouts,
        sides=("without", "with"),
        answers={
            "still helps": ("Still helps", "good"),
            "no longer needed": ("No longer needed", "bad"),
            "hurts": ("Hurts", "bad"),
            "cannot tell": ("Cannot tell", "careful"),
        },
        fails=("rejected",),
    ),
)
