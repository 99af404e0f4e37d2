"""``pytest-skillopt doctor``, as a user runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.cli import main

if TYPE_CHECKING:
    from chat_server import ChatServer

TESTS = """
import pytest

TASKS = [
    pytest.param(n, marks=pytest.mark.skill_task(split="val" if n < 3 else "train"))
    for n in range(12)
]

@pytest.mark.parametrize("n", TASKS)
def test_n(skill_agent, n):
    assert skill_agent("Hi")
"""


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> pytest.Pytester:
    (pytester.path / "SKILL.md").write_text("---\nname: a\ndescription: A.\n---\nSay ok.\n")
    pytester.makepyfile(TESTS)
    pytester.makeini(
        f"""
        [pytest]
        skillopt_target = openai:worker
        skillopt_optimizer = openai:thinker
        skillopt_base_url = {chat_server.url}
        skillopt_prices = worker=1.00/2.00, thinker=1.00/2.00
        """
    )
    return pytester


def examined(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["doctor", *arguments])
    return code, capsys.readouterr().out


def test_a_healthy_project_is_asked_two_tiny_calls(
    project: pytest.Pytester, chat_server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = examined(capsys)
    assert code == 0
    assert "warning" not in said
    for words in (
        "rollouts: about ",
        "price: about $0.0025 a rollout",
        "price: about $0.006 a call of the optimizer",
        "money: about $",
        "ok     settings: ",
        "ok     skill: SKILL.md, 40 characters, version ",
        "ok     target: openai:worker answers after ",
        "ok     optimizer: openai:thinker answers after ",
    ):
        assert words in said, words
    assert (chat_server.calls, len(chat_server.probes)) == (0, 2)
    assert not (project.path / ".skillopt").exists()


def test_what_is_at_fault_is_named(
    project: pytest.Pytester, chat_server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    (project.path / "SKILL.md").write_bytes(b"---\nname: a\n---\n\xff\n")
    chat_server.probe = chat_server.answer.error(503, "come back later")
    code, said = examined(capsys)
    assert code == 1
    assert "SKILL.md: not UTF-8: byte 0xff" in said
    assert "FAULT  target: no answer: openai:worker: HTTP 503: come back later" in said
    chat_server.probe = chat_server.answer.error(401, "no such key", code="invalid_api_key")
    code, said = examined(capsys)
    assert "FAULT  optimizer: the optimizer model cannot be used: openai:thinker" in said


def test_a_coding_agent_whose_model_cannot_be_used_is_at_fault(
    project: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    project.makepyfile(TESTS.replace("skill_agent", "skill_harness"))
    (project.path / "own.py").write_text(
        "import sys\nfrom pytest_skillopt.addons.harness.adapters import Harness\n"
        "AGENT = Harness('own', '{executable} {prompt}', lambda event, trace: None, '', "
        "executable=sys.executable, tested='1')\n"
    )
    options = ("--skillopt-target=openai:", "-oskillopt_harness=own:AGENT", "-opythonpath=.")
    code, said = examined(capsys, "--", "--skillopt", *options)
    assert code == 1
    assert "FAULT  target: target model 'openai:': write provider:model" in said


def test_what_pytest_is_given_is_passed_on(
    project: pytest.Pytester, chat_server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = examined(capsys, "--", "--skillopt", "-k", "1", "--skillopt-rollouts=2")
    assert code == 0
    assert "SKILL.md: 3 tasks" in said
    assert "rollouts: 6;" in said
    assert len(chat_server.probes) == 1
    assert examined(capsys, "--", "-k", "nothing")[0] == 5
