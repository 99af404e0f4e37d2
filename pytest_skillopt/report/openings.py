"""Count how often the test split was measured: each time makes it less unseen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_skillopt.run.directory import Home
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult

_FILE = "openings.txt"
"""File with a line for each measurement of a test split: the skill, as JSON, and the run."""


def counted(run: Run, result: SkillResult) -> SkillResult:
    """Count the measurement of this run, and add the count to its result."""
    count = openings(run.home, result.path)
    if result.test is not None:
        try:
            count = count_opening(run.home, result.path, run.directory.name)
        except OSError as error:
            count += 1
            run.notes.append(f"the measurement of the test split could not be counted: {error}")
    return result.model_copy(update={"test_openings": count})


def openings(home: Home, skill: str) -> int:
    """Count the measurements of a skill's test split over all runs."""
    try:
        marks = set((home.path / _FILE).read_text("utf-8", "replace").split("\n"))
    except OSError:
        return 0
    return sum(mark.startswith(f"{json.dumps(skill)} ") for mark in marks)


def count_opening(home: Home, skill: str, run: str) -> int:
    """Record one more measurement, once per run; return the count; OSError if that fails."""
    with (home.path / _FILE).open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(skill)} {run}\n")
    return openings(home, skill)
