"""Outputs and summary of a job in GitHub Actions."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from fault_project import QUICK, FaultProject
from patience import PATIENCE, is_alive, wait_until
from sessions import clean_environment
from tables import each_row

from pytest_skillopt.cli import main
from pytest_skillopt.plugins.propose.commands import training_arguments, write_outputs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chat_server import ChatServer
    from refusals import Refusal


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer) -> FaultProject:
    return FaultProject(pytester.path, chat_server)


def start(project: FaultProject, *arguments: str, calls: int = 1_000) -> subprocess.Popen[str]:
    """Start a job whose pytest has these arguments too, in a process group of its own."""
    environ = clean_environment(
        OPENAI_API_KEY="sk-test-0123456789",
        GITHUB_OUTPUT=str(project.path / "output"),
        GITHUB_STEP_SUMMARY=str(project.path / "summary"),
    )
    given = shlex.join((*QUICK, *arguments))
    command = [sys.executable, "-m", "pytest_skillopt", "job", f"--max-calls={calls}"]
    return subprocess.Popen(
        [*command, f"--args={given}"],
        cwd=project.path,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def parse(text: str) -> dict[str, str]:
    """Read ``$GITHUB_OUTPUT`` as the runner does."""
    found: dict[str, str] = {}
    lines = iter(text.split("\n"))
    for line in lines:
        name, mark, end = line.partition("<<")
        if mark:
            value: list[str] = []
            for part in lines:
                if part == end:
                    break
                value.append(part)
            found[name] = "\n".join(value)
    return found


@pytest.mark.parametrize(("calls", "accepted"), [(1_000, "true"), (3, "false")])
def test_job_tells_the_ci_how_it_ended(project: FaultProject, calls: int, accepted: str) -> None:
    with (project.path / "pytest.ini").open("a") as file:
        file.write("filterwarnings = error\n")
    said, _ = start(project, "-p", "no:xdist", calls=calls).communicate(timeout=PATIENCE)
    assert parse((project.path / "output").read_text()) == {"accepted": accepted}
    assert "greeting" in (project.path / "summary").read_text(), said
    assert project.run_directory.name in said
    assert project.result["command"][:2] == ["pytest", "--skillopt-train"]


@each_row(
    ("arguments", "message"),
    [
        ([], "a job needs a spending cap, at least one of --max-calls, --max-cost, --max-time"),
        (["--max-calls", "0"], "'0' is not a number above 0"),
        (["--max-calls=-3"], "'-3' is not a number above 0"),
        (["--max-cost", "nan"], "'nan' is not a number above 0"),
        (["--max-cost", "inf"], "'inf' is not a number above 0"),
        (["--max-time", "1", "--args", "-k 'x"], "--args: No closing quotation"),
        (["--args=--skillopt-max-cost=5"], "a job needs a spending cap"),
    ],
)
def test_job_wants_a_cap(arguments: list[str], message: str, refusal: Refusal) -> None:
    assert message in refusal("job", *arguments)


def test_command_of_a_job() -> None:
    given = {"max_calls": "500", "max_cost": "", "max_time": "", "args": "-n 2 -k 'a or b'"}
    assert training_arguments(argparse.Namespace(**given)) == [
        "--skillopt-train", "-n", "2", "-k", "a or b", "--skillopt-max-calls=500",
    ]  # fmt: skip


def test_job_that_fails_before_a_run_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    assert main(["job", "--max-calls=1", "--args=--no-such-option"]) == 4
    assert parse((tmp_path / "output").read_text())["accepted"] == "false"


@pytest.mark.parametrize(
    ("sign", "send"),
    [("SIGINT", os.killpg), ("SIGTERM", os.killpg), ("SIGTERM", os.kill)],
    ids=["Ctrl-C", "SIGTERM to all", "SIGTERM"],
)
def test_a_job_that_is_ended_ends_its_training_and_reports_it(
    project: FaultProject, sign: str, send: Callable[[int, int], None]
) -> None:
    project.server.hold(after=20)
    job = start(project, "-n2")
    wait_until(lambda: project.server.calls > 20)
    send(job.pid, getattr(signal, sign))
    said, _ = job.communicate(timeout=PATIENCE)
    assert job.returncode == pytest.ExitCode.INTERRUPTED, said
    assert said.rstrip().endswith(project.result["resume"]), said
    assert parse((project.path / "output").read_text())["accepted"] == "false"
    assert "greeting" in (project.path / "summary").read_text()


def test_a_job_that_is_killed_leaves_no_training_that_goes_on_to_pay(project: FaultProject) -> None:
    (project.path / "conftest.py").write_text(
        "import os, pathlib\npathlib.Path(f'process-{os.getpid()}').touch()\n"
    )
    project.server.hold(after=20)
    job = start(project, "-n2")
    wait_until(lambda: project.server.calls > 20)
    job.kill()
    processes = [int(path.name.partition("-")[2]) for path in project.path.glob("process-*")]
    project.server.release()
    job.communicate(timeout=PATIENCE)
    wait_until(lambda: not any(map(is_alive, processes)))
    assert len(processes) == 3
    # What was under way at the kill may arrive later; a whole training asks more than 150 times.
    assert project.server.calls < 60


def test_value_cannot_set_another_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"url": "x\naccepted=true\naccepted<<EOF\ntrue\nEOF"}
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    write_outputs(values)
    assert parse((tmp_path / "output").read_text()) == values


def test_nothing_is_written_outside_of_actions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    monkeypatch.chdir(tmp_path)
    there = set(tmp_path.rglob("*"))
    write_outputs({"a": "b"})
    assert set(tmp_path.rglob("*")) == there
