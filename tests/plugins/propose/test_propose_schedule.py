"""Unattended trainings: the crontab and the timer of the page."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.cli import _parser, main
from pytest_skillopt.plugins.propose.commands import training_arguments

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[3] / "docs" / "ci.md"
TO_PYTEST = "--skillopt-max-cost=5"


def test_the_crontab_of_the_page_trains_and_then_proposes(tmp_path: Path) -> None:
    """As cron runs the line, with a stand-in for the program."""
    (line,) = re.findall(r"^17 3 \* \* \* (.*)$", PAGE.read_text(), re.M)
    assert "%" not in line
    program = tmp_path / "project" / ".venv" / "bin" / "pytest-skillopt"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$*"\nexit "${FAIL:-0}"\n')
    program.chmod(0o755)
    (tmp_path / "project" / ".skillopt").mkdir()
    log, environment = tmp_path / "project/.skillopt/night.log", {"HOME": str(tmp_path)}
    subprocess.run(["/bin/sh", "-c", line], check=True, env=environment)
    job, propose = log.read_text().splitlines()
    arguments = training_arguments(_parser(job.split()).parse_args(job.split()))
    assert arguments == ["--skillopt-train", "--skillopt-write=no", TO_PYTEST]
    assert propose == "propose"
    subprocess.run(["/bin/sh", "-c", line], check=False, env=environment | {"FAIL": "1"})
    assert log.read_text().splitlines() == [job, propose, job]


def test_the_timer_of_the_page_starts_what_a_night_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both commands are accepted as written: the training with its cap, and the proposal."""
    service, timer = re.findall(r"```ini\n(\[(?:Service|Timer)\].*?)```", PAGE.read_text(), re.S)
    commands = re.findall(r"ExecStart=\S+/pytest-skillopt (.*)", service)
    assert [line.split()[0] for line in commands] == ["job", "propose"]
    job = _parser(commands[0].split()).parse_args(commands[0].split())
    assert training_arguments(job) == ["--skillopt-train", "--skillopt-write=no", TO_PYTEST]
    (tmp_path / ".skillopt").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(commands[1].split()) == 0
    if verify := shutil.which("systemd-analyze"):
        (tmp_path / "skillopt.service").write_text(service.replace("%h/project/.venv", sys.prefix))
        (tmp_path / "skillopt.timer").write_text(timer)
        command = [verify, "--user", "verify", str(tmp_path / "skillopt.timer")]
        environment = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
        subprocess.run(command, check=True, env=environment)
