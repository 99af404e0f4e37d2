from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.report.openings import count_opening, counted, openings
from pytest_skillopt.run.directory import Home

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / ".skillopt")


def test_openings_of_the_test_split_are_counted_once_a_run(home: Home) -> None:
    home.make()
    assert openings(home, "SKILL.md") == 0
    assert count_opening(home, "SKILL.md", "run-1") == 1
    assert count_opening(home, "SKILL.md", "run-1") == 1
    assert count_opening(home, "SKILL.md", "run-2") == 2
    assert count_opening(home, "other/SKILL.md", "run-2") == 1
    with (home.path / "openings.txt").open("a") as file:
        file.write("torn")
    assert openings(home, "SKILL.md") == 2


def test_openings_that_are_counted_at_once_all_count(home: Home) -> None:
    home.make()
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda n: count_opening(home, "SKILL.md", f"run-{n}"), range(40)))
    assert openings(home, "SKILL.md") == 40
    assert not list(home.path.glob("*.tmp"))


def test_the_result_of_a_training_has_the_count(home: Home) -> None:
    home.make()
    names = ("run-1", "run-2")
    runs: list[Any] = [
        SimpleNamespace(home=home, directory=SimpleNamespace(name=name), notes=[]) for name in names
    ]
    first, second = runs
    counts = [
        counted(run, "SKILL.md", measured=measured)
        for run in (first, second)
        for measured in (False, True)
    ]
    assert counts == [0, 1, 1, 2]
    (home.path / "openings.txt").unlink()
    (home.path / "openings.txt").mkdir()
    assert counted(first, "SKILL.md", measured=True) == 1
    assert "could not be counted" in first.notes[0]
