"""Lines and reports of trainings in seven situations, as text.

``tests/data/screens`` has what each training printed, its result, and the screen of both;
``python tests/_support/screens.py`` writes the screens anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.report.terminal import lines
from pytest_skillopt.run.result import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = Path(__file__).parents[1] / "data" / "screens"
SIZES = (8, 60)
SITUATIONS = (
    "accepted",
    "refused",
    "nothing-found",
    "nothing-to-find",
    "capped",
    "interrupted",
    "faulty",
)


def screen(printed: Sequence[str], result: Result, width: int = 80) -> str:
    """Return the lines of a training and its report."""
    told = [note for note in result.notes if "are not split" in note]
    report = [line.text for line in lines(result, width, live=True, told=told)]
    return "\n".join([*printed, "", *report, ""])


def path(name: str, size: int, suffix: str = "txt") -> Path:
    return FOLDER / f"{name}-{size}.{suffix}"


def kept(name: str, size: int) -> tuple[list[str], Result]:
    """Return the lines and the result of a training that was kept."""
    found = json.loads(path(name, size, "json").read_text("utf-8"))
    return found["printed"], Result.load(json.dumps(found["result"]))


if __name__ == "__main__":
    for situation in SITUATIONS:
        for number in SIZES:
            told = screen(*kept(situation, number))
            path(situation, number).write_text(told, encoding="utf-8")
