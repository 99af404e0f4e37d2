from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.run.directory import Home, RunDirectory, RunError
from pytest_skillopt.run.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / ".skillopt")


def make_run(home: Home, name: str, resume: str | None = None, mode: str = "train") -> None:
    directory = RunDirectory.open(home.runs / name)
    with Journal(directory.journal) as journal:
        journal.write("run", {"mode": mode})
    if resume is not None:
        (directory.path / "result.json").write_text(json.dumps({"resume": resume}))
    directory.close()


def test_a_home_is_out_of_gits_sight(home: Home) -> None:
    run = home.new_run()
    assert (home.path / ".gitignore").read_text() == "*\n"
    assert run.path.parent == home.runs
    run.close()


@pytest.mark.parametrize(
    ("resume", "expected"), [(None, "20260102-b"), ("pytest", "20260102-b"), ("", "")]
)
def test_the_latest_run_can_be_continued_unless_it_has_ended(
    home: Home, resume: str | None, expected: str
) -> None:
    make_run(home, "20260101-a")
    make_run(home, "20260102-b", resume)
    assert home.unfinished() == expected
    assert home.unfinished("20260102-b") == "20260101-a"


def test_a_pipe_in_place_of_a_result_is_not_waited_for(home: Home) -> None:
    make_run(home, "20260101-a")
    os.mkfifo(home.runs / "20260101-a" / "result.json")
    assert home.unfinished() == "20260101-a"


def test_only_a_training_is_continued_whatever_was_run_since(home: Home) -> None:
    make_run(home, "20260101-a")
    make_run(home, "20260102-b", mode="evaluate")
    RunDirectory.open(home.runs / "20260103-c").close()
    assert home.unfinished() == "20260101-a"
    assert home.find("", "training").name == "20260101-a"
    assert home.find("2026", "training").name == "20260101-a"
    assert home.find("20260102-b", "training").name == "20260102-b"
    with pytest.raises(RunError, match=r"there is no training '20260102'.*latest: 20260101-a"):
        home.find("20260102", "training")


def test_a_run_that_was_killed_before_its_first_line_is_not_continued(home: Home) -> None:
    make_run(home, "20260101-a")
    killed = RunDirectory.open(home.runs / "20260102-b")
    killed.journal.write_bytes(b'{"n": 1, "at": "2026')
    killed.close()
    assert home.unfinished() == home.find("", "training").name == "20260101-a"


def test_a_training_at_work_is_not_offered_for_continuing(home: Home) -> None:
    make_run(home, "20260101-a")
    working = RunDirectory.open(home.runs / "20260101-a")
    assert home.unfinished() == ""
    working.close()
    assert home.unfinished() == "20260101-a"


def test_a_run_is_held_by_one_process(home: Home) -> None:
    run = home.new_run()
    with pytest.raises(RunError, match="worked on by another pytest"):
        RunDirectory.open(run.path)
    run.close()
    RunDirectory.open(run.path).close()


def test_versions_are_kept_once(home: Home) -> None:
    run = home.new_run()
    run.keep_version("a" * 64, b"one")
    run.keep_version("a" * 64, b"two")
    assert [path.read_bytes() for path in (run.path / "skills").iterdir()] == [b"one"]
    run.close()


@pytest.mark.usefixtures("no_umask")
def test_only_the_owner_reads_what_runs_keep(home: Home) -> None:
    run = home.new_run()
    folders = (home.path, home.runs, run.path, run.path / "skills")
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
