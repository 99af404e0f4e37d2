"""A worker that is stopped, as by a debugger or a container that is paused."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from run_files import latest_result

from pytest_skillopt.rollouts import workers

if TYPE_CHECKING:
    import pytest
    from chat_server import ChatServer

TESTS = """
import os, pathlib, signal, subprocess
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("number", range(4))
def test_it(skill_agent, number):
    mark = pathlib.Path("stopped")
    if number == 1 and not mark.exists():
        child = subprocess.Popen(["sleep", "600"])
        mark.write_text(f"{os.getpid()} {child.pid}")
        os.kill(os.getpid(), signal.SIGSTOP)
    assert skill_agent("Say ok.") == "ok"
"""


def has_ended(pid: int) -> bool:
    """Check if a process has ended; its entry may wait for a parent to read it."""
    shown = subprocess.run(["ps", "-o", "stat=", "-p", f"{pid}"], stdout=-1, text=True, check=False)
    return shown.stdout.strip()[:1] in ("", "Z")


def test_a_stopped_worker_is_replaced_after_the_rollouts_time_limit(
    pytester: pytest.Pytester,
    chat_server: ChatServer,
    api_key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "_OVERDUE", 1.0)
    (pytester.path / "SKILL.md").write_text("---\nname: g\ndescription: Greets.\n---\nSay ok.\n")
    pytester.makepyfile(test_it=TESTS)
    model = ("--skillopt-model=openai:worker", f"-oskillopt_base_url={chat_server.url}")
    limits = ("--skillopt-rollouts=1", "-oskillopt_timeout=2", "-n", "1")
    result = pytester.runpytest_inprocess("--skillopt", *model, *limits)
    assert result.ret == 0, result.stdout.str()
    (run,) = (pytester.path / ".skillopt" / "runs").iterdir()
    (skill,) = latest_result(pytester.path)["skills"]
    assert [row["before"]["passed"] for row in skill["tasks"]] == [1] * 4
    journal = (run / "journal.jsonl").read_text()
    assert "did not answer within 3 s and was replaced" in journal
    for pid in map(int, (pytester.path / "stopped").read_text().split()):
        assert has_ended(pid)
