"""Changes by ``skillopt_requests`` in the calls of a session, as the server sees them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from refusals import assert_refused

from pytest_skillopt.model.config import _KEYS

if TYPE_CHECKING:
    from pathlib import Path

    from chat_server import ChatServer

TOKEN = "printed.token.0123456789"
TEAM = "the.team.of.the.header"
JUDGE_KEY = "a.key.for.the.judge"
LINES = [
    "max_output_tokens = 300",
    "target.temperature = 0.2",
    'target.extra_body = {"enable_thinking": false, "top_k": 5}',
    'target.headers_env = {"X-Team": "MY_TEAM"}',
    "target.key_command = PYTHON mint.py",
    "judge.reasoning_effort = low",
    "judge.max_output_tokens = 900",
    "judge.key_env = JUDGE",
]


@pytest.fixture
def project(
    pytester: pytest.Pytester, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    """A task that needs the target and the judge; both repeat every secret there is."""
    monkeypatch.setenv("MY_TEAM", TEAM)
    monkeypatch.setenv("JUDGE", JUDGE_KEY)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    grade = json.dumps({"reason": f"{TOKEN} {TEAM} {JUDGE_KEY}", "score": 1})
    chat_server.reply = lambda body: grade if body["model"] == "grader" else "hello"
    pytester.makefile(".md", SKILL="---\nname: a\ndescription: A.\n---\nSay hello.\n")
    (pytester.path / "mint.py").write_text(
        f"print('{TOKEN[:8]}' + '{TOKEN[8:]}')\nopen('printed', 'a').write('x')\n"
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.skill_task
        def test_it(skill_agent, skill_judge):
            assert skill_judge("It greets.", skill_agent("Greet me.")).score == 1
        """
    )
    configure(pytester.path, chat_server.url, LINES)
    _KEYS.clear()
    return pytester


def configure(root: Path, url: str, lines: list[str]) -> None:
    written = [line.replace("PYTHON", sys.executable) for line in lines]
    (root / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\n"
        'skillopt_target = "openai:worker"\nskillopt_judge = "openai:grader"\n'
        f'skillopt_base_url = "{url}"\nskillopt_requests = {json.dumps(written)}\n'
    )


def of(server: ChatServer, model: str) -> list[Any]:
    return [request for request in server.requests if request.body["model"] == model]


@pytest.mark.parametrize("arguments", [("-p", "no:xdist"), ("-n1",)], ids=" ".join)
def test_each_role_is_asked_in_its_own_way_and_no_secret_is_kept(
    project: pytest.Pytester, chat_server: ChatServer, arguments: tuple[str, ...]
) -> None:
    done = project.runpytest_inprocess("--skillopt", "-v", *arguments)
    assert done.ret == 0
    for request in of(chat_server, "worker"):
        body = {name: value for name, value in request.body.items() if name != "messages"}
        assert body == {
            "model": "worker",
            "temperature": 0.2,
            "max_tokens": 300,
            "enable_thinking": False,
            "top_k": 5,
        }
        assert request.headers["authorization"] == f"Bearer {TOKEN}"
        assert request.headers["x-team"] == TEAM
    for request in of(chat_server, "grader"):
        assert (request.body["reasoning_effort"], request.body["max_tokens"]) == ("low", 900)
        assert not {"temperature", "enable_thinking"} & request.body.keys()
        assert request.headers["authorization"] == f"Bearer {JUDGE_KEY}"
        assert "x-team" not in request.headers
    assert len(of(chat_server, "worker")) == len(of(chat_server, "grader")) == 3
    assert (project.path / "printed").read_text() == "x", "asked for once"
    left = [path for path in project.path.rglob("*") if path.is_file()]
    shown = {str(path): path.read_bytes() for path in left}
    shown["the terminal"] = (done.stdout.str() + done.stderr.str()).encode()
    for secret in (TOKEN, TEAM, JUDGE_KEY):
        assert [name for name, content in shown.items() if secret.encode() in content] == []


def test_what_changes_a_reply_is_asked_anew_and_what_does_not_is_free(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    chat_server.reply = lambda body: '{"reason": "", "score": 1}'

    def calls_with(lines: list[str]) -> int:
        before = chat_server.calls
        configure(project.path, chat_server.url, lines)
        assert project.runpytest_inprocess("-p", "no:xdist", "--skillopt").ret == 0
        return chat_server.calls - before

    assert calls_with(LINES) == 6
    others = [line for line in LINES if "headers" not in line and "key" not in line]
    assert calls_with([*others, "key_env = JUDGE"]) == 0
    assert calls_with([*LINES, "judge.top_p = 0.5"]) == 3


def test_a_command_that_prints_no_key_ends_the_session_before_any_call(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    program = f"import sys; print('log in first', file=sys.stderr); sys.exit({JUDGE_KEY!r})"
    (project.path / "mint.py").write_text(program)
    done = project.runpytest_inprocess("-p", "no:xdist", "--skillopt")
    assert_refused(done, "*the target model cannot be used: *key_command * gave no key*")
    assert "log in first" in done.stderr.str()
    assert JUDGE_KEY not in done.stderr.str()
    assert of(chat_server, "worker") == []


def test_a_wrong_line_is_a_usage_error_that_names_it(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    configure(project.path, chat_server.url, [*LINES, "optimizer.temprature = 1"])
    assert_refused(
        project.runpytest_inprocess("-p", "no:xdist", "--skillopt"),
        "*skillopt_requests, line 9 (optimizer.temprature): write*",
    )
    assert chat_server.calls == 0
