"""Count how often the test split was measured: each time makes it less unseen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_skillopt.skill.document import SkillError
from pytest_skillopt.skill.files import read_bounded

if TYPE_CHECKING:
    from pytest_skillopt.run.directory import Home
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult

_FILE = "openings.txt"
"""File with a line for each measurement of a test split: the skill, as JSON, and the run."""
_MOST_BYTES = 20_000_000
"""Most bytes of that file."""


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
