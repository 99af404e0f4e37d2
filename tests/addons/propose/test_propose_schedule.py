"""The line of a crontab that trains every night."""

from __future__ import annotations

import io
import plistlib
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.cli import main

if TYPE_CHECKING:
    from pathlib import Path

CAP, TO_PYTEST = "--max-cost=5", "--skillopt-max-cost=5"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an awkward name, worked in."""
    project = tmp_path / "100% o'clock $HOME"
    (project / ".skillopt").mkdir(parents=True)
    monkeypatch.chdir(project)
    return project


def line(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["schedule", CAP, *arguments]) == 0
    (printed,) = capsys.readouterr().out.splitlines()
    return printed


def command_of(printed: str) -> str:
    """Text that cron runs: ``\\%`` is a percent sign, a bare ``%`` ends the command."""
    command = printed.split(" ", 5)[5]
    assert "%" not in command.replace("\\%", "")
    return command.replace("\\%", "%")


def test_time_and_arguments_are_taken_over(capsys: pytest.CaptureFixture[str]) -> None:
    printed = line(
        capsys, "--at", "4:05", "--args=-n 4 -k 'not slow'", "--propose=--base main --no-forge"
    )
    assert printed.startswith("5 4 * * * cd ")
    assert f"--skillopt-train --skillopt-write=no -n 4 -k 'not slow' {TO_PYTEST} &&" in printed
    assert "propose --base main --no-forge;" in printed


def test_command_runs_in_the_project_and_logs_there(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shell's part of the entry, with a stand-in for Python."""
    command = command_of(line(capsys))
    stand_in = tmp_path / "python"
    stand_in.write_text('#!/bin/sh\nprintf "%s: %s\\n" "$PWD" "$*"\nexit "${FAIL:-0}"\n')
    stand_in.chmod(0o755)
    command = command.replace(sys.executable, str(stand_in))

    subprocess.run(["/bin/sh", "-c", command], check=True, cwd="/", env={"PATH": "/bin:/usr/bin"})

    log = project / ".skillopt" / "runs" / "schedule.log"
    assert log.read_text().splitlines() == [
        f"{project}: -m pytest --skillopt-train --skillopt-write=no {TO_PYTEST}",
        f"{project}: -m pytest_skillopt propose",
    ]
    failed = subprocess.run(
        ["/bin/sh", "-c", command], cwd="/", env={"PATH": "/bin:/usr/bin", "FAIL": "1"}
    )
    assert failed.returncode == 1
    assert len(log.read_text().splitlines()) == 3


def test_the_line_pipes_into_a_crontab_and_out_again(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As the page on CI says it, with a stand-in for the program ``crontab``."""
    other = line(capsys).replace("o'\"'\"'clock", "bell")
    table = tmp_path / "table"
    table.write_text(f"5 4 * * * backup --all\n{other}\n")
    program = tmp_path / "crontab"
    new = shlex.quote(f"{table}.new")
    program.write_text(
        f"#!/bin/sh\ncase $1 in\n-l) cat {table};;\n-) cat >{new} && mv {new} {table};;\nesac\n"
    )
    program.chmod(0o755)
    tool = f"{shlex.quote(sys.executable)} -m pytest_skillopt"
    pipe = f"({program} -l; {tool} schedule {CAP}) | {program} -"
    subprocess.run(["/bin/sh", "-c", pipe], check=True, cwd=project)
    before, (mine,) = table.read_text().splitlines()[:2], table.read_text().splitlines()[2:]
    assert before == ["5 4 * * * backup --all", other]
    assert "--skillopt-train" in mine
    assert mine != other
    monkeypatch.setattr(sys, "stdin", io.StringIO(table.read_text()))
    assert main(["unschedule"]) == 0
    assert capsys.readouterr().out.splitlines() == before


def test_launchd_and_windows_get_the_same_commands(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["schedule", CAP, "--system", "launchd", "--at", "4:05"]) == 0
    printed = capsys.readouterr()
    entry = plistlib.loads(printed.out.encode())
    place = f"~/Library/LaunchAgents/{entry['Label']}.plist"
    assert f"as {place}, then: launchctl bootstrap gui/$(id -u) {place}\n" in printed.err
    assert entry["StartCalendarInterval"] == {"Hour": 4, "Minute": 5}
    assert entry["ProgramArguments"][2] == command_of(line(capsys))
    assert main(["schedule", CAP, "--system", "windows"]) == 1
    assert "cannot contain %" in capsys.readouterr().err
    plain = project.parent / "R&D"
    (plain / ".skillopt").mkdir(parents=True)
    monkeypatch.chdir(plain)
    assert main(["schedule", CAP, "--system", "windows", "--args=-k 'a b'"]) == 0
    printed = capsys.readouterr()
    task = ElementTree.fromstring(printed.out)
    texts = {element.tag.rpartition("}")[2]: element.text or "" for element in task.iter()}
    assert texts["WorkingDirectory"] == str(plain)
    assert texts["StartBoundary"].endswith("T03:17:00")
    assert f'--skillopt-write=no -k "a b" {TO_PYTEST} && ' in texts["Arguments"]
    runs = plain / ".skillopt" / "runs"
    assert f'(if not exist "{runs}" mkdir "{runs}") && (' in texts["Arguments"]
    for system in ("launchd", "windows"):
        assert main(["unschedule", "--system", system]) == 0
        removed = capsys.readouterr().out
        assert " skillopt-r-d-" in removed.replace("/", " ")
    name = removed.split()[-1]
    assert f"schtasks /Create /TN {name} /XML task.xml" in printed.err


@pytest.mark.parametrize("at", ["25:00", "3", "03:60", "3:7", "0 3 * * *", ""])
def test_time_that_is_none(capsys: pytest.CaptureFixture[str], at: str) -> None:
    assert main(["schedule", "--at", at, CAP]) == 1
    assert "is not a time of day" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--args=-k 'open", "--args: No closing quotation"),
        ("--propose='open", "--propose: No closing quotation"),
        ("--args=-k 'a\nb'", "a crontab line cannot contain a line break"),
    ],
)
def test_arguments_that_a_crontab_cannot_hold(
    capsys: pytest.CaptureFixture[str], argument: str, message: str
) -> None:
    assert main(["schedule", CAP, argument]) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("cap", [[], ["--max-cost=0"], ["--args=--skillopt-max-cost=5"]])
def test_night_without_a_cap_is_refused_as_in_ci(
    capsys: pytest.CaptureFixture[str], cap: list[str]
) -> None:
    assert main(["schedule", *cap]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert main(["job", *cap]) == 1
    assert capsys.readouterr().err == said.err
    assert "cap" in said.err or "not a number above 0" in said.err
