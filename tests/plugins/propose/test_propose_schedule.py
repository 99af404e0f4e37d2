"""The line of a crontab that trains every night."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tables import each_row

from pytest_skillopt.cli import _parser, main
from pytest_skillopt.plugins.propose.commands import training_arguments

if TYPE_CHECKING:
    from refusals import Refusal

PAGE = Path(__file__).parents[3] / "docs" / "ci.md"
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


def test_arguments_that_propose_does_not_know_are_refused_before_the_night(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["schedule", "--max-calls=1", "--propose=--no-forgery"])
    assert "propose: error: unrecognized arguments: --no-forgery" in capsys.readouterr().err


@each_row(
    ("argument", "said"),
    [
        ("--typo", "unrecognized arguments: --typo"),
        ("-o skillopt_rollout=2", "skillopt_rollout is not a setting; the nearest is"),
        ("--skillopt-rollouts=many", "--skillopt-rollouts: 'many' is not a whole number"),
        ("tests/gone.py", "file or directory not found: tests/gone.py"),
    ],
)
def test_arguments_that_pytest_refuses_are_refused_before_the_night(
    capfd: pytest.CaptureFixture[str], argument: str, said: str
) -> None:
    assert main(["schedule", "--max-calls=1", f"--args={argument}"]) == 1
    printed = capfd.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert "error: pytest refuses these arguments, as it says above" in printed.err


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
        f"{project}: -P -m pytest_skillopt propose",
    ]
    failed = subprocess.run(
        ["/bin/sh", "-c", command], cwd="/", env={"PATH": "/bin:/usr/bin", "FAIL": "1"}
    )
    assert failed.returncode == 1
    assert len(log.read_text().splitlines()) == 3


def test_the_line_pipes_into_a_crontab(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
    before = table.read_text().splitlines()[:2]
    (mine,) = table.read_text().splitlines()[2:]
    assert before == ["5 4 * * * backup --all", other]
    assert "--skillopt-train" in mine
    assert mine != other


@pytest.mark.parametrize("words", [["--system", "launchd"], ["--system=windows"]])
def test_another_scheduler_is_refused_with_what_to_do(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["schedule", CAP, *words]) == 4
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "--system is gone: schedule writes a line for cron only" in printed.err
    assert "docs/ci.md" in printed.err


def test_the_timer_of_the_page_starts_what_a_night_needs(tmp_path: Path, project: Path) -> None:
    """Both commands are accepted as written: the training with its cap, and the proposal."""
    service, timer = re.findall(r"```ini\n(\[(?:Service|Timer)\].*?)```", PAGE.read_text(), re.S)
    commands = re.findall(r"ExecStart=\S+/pytest-skillopt (.*)", service)
    assert [line.split()[0] for line in commands] == ["job", "propose"]
    job = _parser(commands[0].split()).parse_args(commands[0].split())
    assert training_arguments(job) == ["--skillopt-train", "--skillopt-write=no", TO_PYTEST]
    assert main(commands[1].split()) == 0
    if verify := shutil.which("systemd-analyze"):
        (tmp_path / "skillopt.service").write_text(service.replace("%h/project/.venv", sys.prefix))
        (tmp_path / "skillopt.timer").write_text(timer)
        command = [verify, "--user", "verify", str(tmp_path / "skillopt.timer")]
        environment = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
        subprocess.run(command, check=True, env=environment)


@each_row("at", ["25:00", "3", "03:60", "3:7", "0 3 * * *", ""])
def test_time_that_is_none(refusal: Refusal, at: str) -> None:
    assert "is not a time of day" in refusal("schedule", "--at", at, CAP)


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
