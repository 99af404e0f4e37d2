"""Tasks that pass whatever the agent does are named before anything is paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import warm_sessions
from run_files import latest_entries

if TYPE_CHECKING:
    from chat_server import ChatServer

LAX = "with an agent that does nothing test_guests.py::test_lax passes: assert what only good work"
TESTS = """
import socket

import pytest


@pytest.mark.skill_task
@pytest.mark.parametrize("n", range(3))
def test_n(skill_agent, n):
    assert skill_agent(f"Greet guest {n}.").endswith("!")


@pytest.mark.skill_task
def test_lax(skill_agent):
    skill_agent("Greet nobody.")


@pytest.mark.skill_task(must_pass=True)
def test_guard(skill_agent):
    skill_agent("Greet nobody.")


@pytest.mark.skill_task
def test_judged(skill_agent, skill_judge):
    assert skill_judge("Is it polite?", skill_agent("Greet us.")).score > 0.5


@pytest.mark.skill_task
def test_own_call(skill_agent, where):
    skill_agent("Greet the server.")
    socket.create_connection(where).close()


@pytest.mark.skill_task
def test_own_agent(skill, where):
    socket.create_connection(where).close()


@pytest.fixture(scope="session")
def where(request):
    host, port = request.config.getini("server").split(":")
    socket.create_connection((host, int(port))).close()
    return host, int(port)
"""


@pytest.fixture
def project(
    pytester: pytest.Pytester, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-test")
    (pytester.path / "SKILL.md").write_text("---\nname: a\ndescription: A.\n---\n\nSay hello.\n")
    pytester.makepyfile(test_guests=TESTS)
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addini('server', '')\n")
    host = chat_server.url.split("//")[1].partition("/")[0]
    pytester.makeini(
        f"[pytest]\nserver = {host}\nskillopt_model = openai:m\n"
        f"skillopt_base_url = {chat_server.url}\n"
    )
    chat_server.reply = lambda body: '{"score": 1, "reason": "ok"}'
    return pytester


@pytest.mark.parametrize("workers", [("-p", "no:xdist"), ("-n", "1")], ids=["here", "worker"])
def test_a_task_that_nothing_passes_is_named_and_nothing_is_called_for_it(
    project: pytest.Pytester, chat_server: ChatServer, workers: tuple[str, ...]
) -> None:
    command = ("--skillopt-train", "--skillopt-max-calls=1", *workers)
    result = warm_sessions.run(*command, cwd=project.path)
    result.stdout.fnmatch_lines([f"skillopt: {LAX}*"])
    assert len(chat_server.bodies) <= 1, "only the look whether the model is there"
    (data,) = latest_entries(project.path, "idle")
    assert [task for task, _ in data["passed"]] == ["test_guests.py::test_lax"]


def test_the_plan_names_what_an_earlier_training_has_found(project: pytest.Pytester) -> None:
    plan = ("--skillopt-train", "--collect-only", "-q")
    planned = warm_sessions.run(*plan, cwd=project.path)
    planned.stdout.no_fnmatch_line("*does nothing*")
    warm_sessions.run("--skillopt-train", "--skillopt-max-rollouts=30", cwd=project.path)
    planned = warm_sessions.run(*plan, cwd=project.path)
    planned.stdout.fnmatch_lines([f"{LAX}*"])
