"""The crontab entry, with a stand-in for the program ``crontab``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.cli import main
from pytest_skillopt.propose.errors import ProposeError
from pytest_skillopt.propose.schedule import entry, with_entry

if TYPE_CHECKING:
    from collections.abc import Callable

CAP, TO_PYTEST = "--max-cost=5", "--skillopt-max-cost=5"
OTHERS = "MAILTO=ada@example.org\n5 4 * * * backup --all\n"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in's crontab, a file; the working directory has an awkward name."""
    program = tmp_path / "bin" / "crontab"
    file = tmp_path / "table"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\ncase $1 in\n-l) cat {file} 2>/dev/null && exit\n"
        f"echo no crontab for me >&2; exit 1;;\n-) cat >{file};;\n*) exit 2;;\nesac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    project = tmp_path / "100% o'clock $HOME"
    (project / ".skillopt").mkdir(parents=True)
    monkeypatch.chdir(project)
    return file


def command_of(crontab: str) -> str:
    """What cron hands to the shell: ``\\%`` is a percent sign, a bare ``%`` ends the command."""
    (line,) = [line for line in crontab.splitlines() if "--skillopt-train" in line]
    command = line.split(" ", 5)[5]
    assert "%" not in command.replace("\\%", "")
    return command.replace("\\%", "%")


def test_entry_is_shown_and_installed_next_to_others(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.write_text(OTHERS)
    assert main(["schedule", "--at", "4:05", "--base", "main", "--yes", CAP]) == 0
    text = table.read_text()
    assert text.startswith(OTHERS)
    assert "\n5 4 * * * cd " in text
    assert "--base main" in text
    assert text.removeprefix(OTHERS).strip() in capsys.readouterr().out


def test_arguments_of_pytest_are_taken_over(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schedule", "--yes", CAP, "--args=-n 4 -k 'not slow'"]) == 0
    assert (
        f"--skillopt-train --skillopt-write=no -n 4 -k 'not slow' {TO_PYTEST} &&"
        in table.read_text()
    )
    assert main(["schedule", "--yes", CAP, "--args=-k 'open"]) == 1
    assert "--args: No closing quotation" in capsys.readouterr().err


def test_installing_twice_changes_nothing(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["schedule", "--yes", CAP])
    first = table.read_text()
    assert main(["schedule", "--yes", CAP]) == 0
    assert table.read_text() == first
    assert "installed already" in capsys.readouterr().out


def test_another_time_replaces_the_entry_where_it_is(table: Path) -> None:
    main(["schedule", "--yes", CAP])
    table.write_text(table.read_text() + OTHERS)
    assert main(["schedule", "--at", "23:59", "--yes", CAP]) == 0
    text = table.read_text()
    assert text.count("--skillopt-train") == 1
    assert "59 23 * * *" in text
    assert text.endswith(OTHERS)


def test_unschedule_gives_back_what_was_there(table: Path) -> None:
    table.write_text(OTHERS)
    main(["schedule", "--yes", CAP])
    assert main(["unschedule", "--yes"]) == 0
    assert table.read_text() == OTHERS


def test_unschedule_without_an_entry(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["unschedule", "--yes"]) == 0
    assert "has no entry" in capsys.readouterr().out
    assert not table.exists()


def test_nothing_is_installed_without_a_yes(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schedule", CAP]) == 1
    assert "give --yes" in capsys.readouterr().err
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    answers: Callable[[str], str] = lambda prompt: "n"  # noqa: E731
    monkeypatch.setattr("builtins.input", answers)
    assert main(["schedule", CAP]) == 1
    assert not table.exists()


def test_command_runs_in_the_project_and_logs_there(table: Path) -> None:
    """The shell's part of the entry, with true and false in place of Python."""
    main(["schedule", "--yes", CAP])
    command = command_of(table.read_text())
    log = Path.cwd() / ".skillopt" / "runs" / "schedule.log"
    stand_in = table.parent / "python"
    stand_in.write_text('#!/bin/sh\nprintf "%s: %s\\n" "$PWD" "$*"\nexit "${FAIL:-0}"\n')
    stand_in.chmod(0o755)
    command = command.replace(sys.executable, str(stand_in))

    subprocess.run(["/bin/sh", "-c", command], check=True, cwd="/", env={"PATH": "/bin:/usr/bin"})

    lines = log.read_text().splitlines()
    assert lines == [
        f"{Path.cwd()}: -m pytest --skillopt-train --skillopt-write=no {TO_PYTEST}",
        f"{Path.cwd()}: -m pytest_skillopt propose",
    ]
    failed = subprocess.run(
        ["/bin/sh", "-c", command], cwd="/", env={"PATH": "/bin:/usr/bin", "FAIL": "1"}
    )
    assert failed.returncode == 1
    assert len(log.read_text().splitlines()) == 3


@pytest.mark.parametrize("at", ["25:00", "3", "03:60", "3:7", "0 3 * * *", ""])
def test_time_that_is_none(table: Path, capsys: pytest.CaptureFixture[str], at: str) -> None:
    assert main(["schedule", "--at", at, "--yes", CAP]) == 1
    assert "is no time of day" in capsys.readouterr().err
    assert not table.exists()


def test_path_with_a_line_break() -> None:
    project = Path("/a\n* * * * * evil")
    with pytest.raises(ProposeError, match="line break"):
        entry(project, project / ".skillopt", "03:17", train=["true"])


def test_torn_block_is_not_guessed_at(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["schedule", "--yes", CAP])
    torn = "\n".join(table.read_text().splitlines()[:-1]) + "\n" + OTHERS
    table.write_text(torn)
    assert main(["unschedule", "--yes"]) == 1
    assert "without its end" in capsys.readouterr().err
    assert table.read_text() == torn


@pytest.mark.parametrize("cap", [[], ["--max-cost=0"], ["--args=--skillopt-max-cost=5"]])
def test_night_without_a_cap_is_refused_as_in_ci(
    table: Path, capsys: pytest.CaptureFixture[str], cap: list[str]
) -> None:
    assert main(["schedule", "--yes", *cap]) == 1
    said = capsys.readouterr().err
    assert main(["job", *cap]) == 1
    assert capsys.readouterr().err == said
    assert "cap" in said or "no number above 0" in said
    assert not table.exists()


def test_two_projects_do_not_meet() -> None:
    one, two = Path("/a"), Path("/a/b")
    text = with_entry("", one, entry(one, one / ".skillopt", "01:00", train=["true"]))
    both = with_entry(text, two, entry(two, two / ".skillopt", "02:00", train=["true"]))
    assert with_entry(both, two, "") == text


def test_no_crontab_program(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["schedule", "--yes", CAP]) == 1
    assert "there is no program crontab here" in capsys.readouterr().err
