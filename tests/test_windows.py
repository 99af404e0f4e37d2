"""Sessions on a machine that lacks what Windows lacks; ``_support/windows`` takes it away.

Their locale knows ASCII only, so that a file opened without an encoding fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from fault_project import QUICK, SKILL, FaultProject
from patience import PATIENCE, is_alive, wait_until
from sessions import LIKE_WINDOWS, clean_environment

if TYPE_CHECKING:
    from pathlib import Path

    from chat_server import ChatServer

POSIX_ONLY = {
    f"plugins.agents.{name}" for name in ("guard", "harness", "kept_runs", "tree", "workspace")
}
IMPORTS = """
import importlib, json, pkgutil, pytest_skillopt
failed = []
for module in pkgutil.walk_packages(pytest_skillopt.__path__, "pytest_skillopt."):
    try:
        importlib.import_module(module.name)
    except (ImportError, AttributeError):
        failed.append(module.name.removeprefix("pytest_skillopt."))
print(json.dumps(failed))
"""
PROCESSES = "#!/bin/sh\nexec ps -A -o pid=,ppid=\n"
HANGING = """
import subprocess, sys, time
import pytest

child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, file=open("child.txt", "w"))

@pytest.mark.skill_task
def test_hangs(skill):
    while True:
        time.sleep(0.01)
"""


def run(folder: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = clean_environment(**{**LIKE_WINDOWS, **changes})
    command = [sys.executable, *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="cp1252",
        timeout=PATIENCE,
    )


def test_all_but_the_inside_of_the_harness_is_imported(tmp_path: Path) -> None:
    done = run(tmp_path, "-c", IMPORTS)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == POSIX_ONLY


def test_a_training(tmp_path: Path, chat_server: ChatServer) -> None:
    """On a worker; a rollout that takes too long is run in the session's own process, too."""
    project = FaultProject(tmp_path, chat_server)
    project.skill.write_bytes(
        SKILL.replace(b"Say hello", "Sag grüß Gott".encode()).replace(b"\n", b"\r\n")
    )
    (temporary := tmp_path / "temporary").mkdir()
    options = ("--skillopt-train", *QUICK, "-n1", "--skillopt-cache=rw")
    environment = {"TMPDIR": str(temporary), "OPENAI_API_KEY": "sk-test-0123456789"}
    done = run(tmp_path, "-m", "pytest", *options, **environment)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert list(temporary.glob("skillopt-*")) == []
    assert "Accepted" in said
    (skill,) = project.result["skills"]
    assert skill["status"] == "accepted"
    written = project.skill.read_bytes()
    assert "Sag grüß Gott".encode() in written
    assert b"exclamation mark" in written
    assert written.count(b"\n") == written.count(b"\r\n")
    shown = run(tmp_path, "-m", "pytest_skillopt.cli", "show")
    assert shown.returncode == 0, shown.stderr


@pytest.mark.parametrize("workers", [("-p", "no:xdist"), ("-n", "1")], ids=["serial", "worker"])
def test_a_rollout_that_takes_too_long(tmp_path: Path, workers: tuple[str, ...]) -> None:
    """It is interrupted; what a worker that has to be ended has started ends with it."""
    (tmp_path / "SKILL.md").write_bytes(SKILL)
    (tmp_path / "test_suite.py").write_text(HANGING)
    (tmp_path / "powershell").write_text(PROCESSES)
    (tmp_path / "powershell").chmod(0o755)
    path = f"{tmp_path}:{clean_environment()['PATH']}"
    once = ("--skillopt-rollouts=1", "-oskillopt_max_attempts=1")
    options = ("--skillopt", *once, "-oskillopt_timeout=1")
    done = run(tmp_path, "-m", "pytest", *workers, *options, PATH=path)
    assert "test_hangs took longer than skillopt_timeout=1 s" in done.stdout, done.stdout
    if "no:xdist" not in workers:
        child = int((tmp_path / "child.txt").read_text())
        wait_until(lambda: not is_alive(child))


def test_an_agent_is_refused(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_bytes(SKILL)
    (tmp_path / "test_suite.py").write_text(
        "import pytest\n\n@pytest.mark.skill_task\ndef test_it(skill_harness):\n    pass\n"
    )
    both = "import pytest, sys; pytest.main([]); sys.exit(pytest.main(['--skillopt']))"
    done = run(tmp_path, "-c", both)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "Linux and macOS only" in done.stderr
    assert "WSL" in done.stderr
    assert "Linux and macOS only" in done.stdout
