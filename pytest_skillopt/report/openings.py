"""Count how often the test split was measured: each time makes it less unseen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_skillopt.skill.document import SkillError
from pytest_skillopt.skill.files import read_bounded

if TYPE_CHECKING:
    from pytest_skillopt.run.directory import Home
    from pytest_skillopt.run.openrun import Run

_FILE = "openings.txt"
"""File with a line for each measurement of a test split: the skill, as JSON, and the run."""
_MOST_BYTES = 20_000_000
"""Most bytes of that file."""


def counted(run: Run, skill: str, *, measured: bool) -> int:
    """Return how often a skill's test split was measured; count this run, if it has."""
    if not measured:
        return openings(run.home, skill)
    try:
        return count_opening(run.home, skill, run.directory.name)
    except OSError as error:
        run.notes.append(f"the measurement of the test split could not be counted: {error}")
        return openings(run.home, skill) + 1


def openings(home: Home, skill: str) -> int:
    """Count the measurements of a skill's test split over all runs."""
    try:
        data = read_bounded(home.path / _FILE, _MOST_BYTES)
    except (OSError, SkillError):
        return 0
    marks = set(data.decode("utf-8", "replace").split("\n"))
    return sum(mark.startswith(f"{json.dumps(skill)} ") for mark in marks)


def count_opening(home: Home, skill: str, run: str) -> int:
    """Record one more measurement, once per run; return the count; OSError if that fails."""
    path = home.path / _FILE
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is not a regular file")
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(skill)} {run}\n")
    return openings(home, skill)
