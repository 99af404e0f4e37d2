"""The values of secret variables are in nothing that a session leaves behind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from chat_server import system_of
from greetings import TWO_MODELS, write_project
from run_files import latest_entries, latest_result

if TYPE_CHECKING:
    from pathlib import Path

    from chat_server import Body, ChatServer

SECRET = 'pl4nted/"quoted"\\secret=77'
KEY = "sk-test-0123456789"
WRITTEN = json.dumps(SECRET)[1:-1]
FORMS = {KEY, SECRET, WRITTEN, json.dumps(json.dumps(SECRET))[3:-3], quote(SECRET, "")}
TESTS = """
import logging, os, pytest, warnings

SECRET = os.environ["DEPLOY_TOKEN"]

@pytest.mark.skill_task
@pytest.mark.parametrize("name", "Ada Ben Cleo Dan Eve Finn Gus Hal Ida Jo Kim Lea".split())
def test_greeting(skill_agent, rollout, name, request):
    print("printed", SECRET)
    logging.getLogger().error("logged %s", SECRET)
    rollout.record("tool", {"found": SECRET})
    if name in ("Ada", "Ben"):
        rollout.feedback(f"It should not tell {SECRET}.")
    reply = skill_agent(f"Greet {name}. The token is {SECRET}.")
    print(request.config.option.db_password, request.config.getini("zz_api_token"))
    print(request.config.getini("zz_signing_keys"))
    assert SECRET in reply, "the target's own words are the test's to judge"
    assert "!" in reply, f"{reply} and {SECRET}"

@pytest.fixture(autouse=True)
def database(request, rollout):
    if "Kim" in request.node.name and rollout.index == 1:
        raise ConnectionError(f"cannot log in with {SECRET}")
"""


def play(body: Body) -> str:
    """Both models repeat the secret in all they say."""
    if body["model"] == "thinker":
        edits = [
            {"op": "append", "target": "", "content": "End with an exclamation mark."},
            {"op": "append", "target": "", "content": f"Log in with {SECRET}."},
        ]
        return json.dumps({"reasoning": f"It knows {SECRET}.", "edits": edits})
    mark = "!" if "exclamation" in system_of(body) else "."
    return f"Hello{mark} {SECRET}"


OPTIONS = """
def pytest_addoption(parser):
    parser.addoption("--db-password")
    parser.addini("zz_api_token", "")
    parser.addini("zz_signing_keys", "", "linelist")
"""

EACH_WAY = pytest.mark.parametrize("arguments", [("-p", "no:xdist"), ("-n1",)], ids=" ".join)


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the key of the models, and let the project name their address."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize(
    "arguments",
    [("-p", "no:xdist"), ("-n1",), ("-p", "no:xdist", "--skillopt-search=batch")],
    ids=" ".join,
)
def test_no_file_and_no_line_holds_a_secret(
    pytester: pytest.Pytester,
    chat_server: ChatServer,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)
    chat_server.reply = play
    named = ("Sommer-of-2024", "Winter/of/2025", "Herbst.of.2026", "Lenz_of_2027")
    pytester.makeconftest(OPTIONS)
    body = json.dumps({"metadata": {"service-password": named[2]}})
    more = {
        "requests": f"extra_body = {body}",
        "rollouts": 1,
        "final_rollouts": 2,
        "published": "patience: 1",
    }
    write_project(pytester, chat_server, TESTS, **TWO_MODELS, **more)
    ini = pytester.path / "tox.ini"
    ini.write_text(f"{ini.read_text()}\nzz_signing_keys =\n    {named[3]}\n")
    command = ("--skillopt-train", "--junitxml=junit.xml", "-v", *arguments)
    command += (f"-oskillopt_preferences=Tell nobody {SECRET}.",)
    command += ("--db-password", named[0], f"-ozz_api_token={named[1]}")
    forms = {*FORMS, *named}
    done = pytester.runpytest_inprocess(*command, "-oskillopt_max_error_rate=0.2")
    assert done.ret == 0
    result = _result(pytester.path)
    assert result["status"] == "accepted"
    assert not any(form in done.stdout.str() + done.stderr.str() for form in forms)
    left = [path for path in pytester.path.rglob("*") if path.is_file()]
    assert {"journal.jsonl", "report.html", "summary.md", "junit.xml", "cache.db"} <= {
        path.name for path in left
    }
    holding = [
        str(path.relative_to(pytester.path))
        for path in left
        if path.name != "tox.ini" and any(form.encode() in path.read_bytes() for form in forms)
    ]
    assert holding == []
    asked = [json.dumps(body) for body in chat_server.bodies if body["model"] == "thinker"]
    assert asked
    assert chat_server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert not any(form in text for form in FORMS for text in asked)


@EACH_WAY
def test_the_key_is_a_secret_whatever_its_variable_is_called(
    pytester: pytest.Pytester,
    chat_server: ChatServer,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    key = "innocent.as.a.lamb"
    monkeypatch.setenv("MY_ENDPOINT", key)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    chat_server.reply = lambda body: f"You call me with {key}."
    pytester.makefile(".md", SKILL="---\nname: greet\ndescription: Greets.\n---\nSay hello.\n")
    pytester.makepyfile(
        """
        import os, pytest

        @pytest.mark.skill_task
        def test_greeting(skill_agent, rollout):
            rollout.feedback("It is " + os.environ["MY_ENDPOINT"])
            assert skill_agent("Hello.") == os.environ["MY_ENDPOINT"]
        """
    )
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        skillopt_model = "openai:worker"
        skillopt_requests = ["key_env = MY_ENDPOINT"]
        skillopt_base_url = "{chat_server.url}"
        """
    )
    done = pytester.runpytest_inprocess("--skillopt", "--junitxml=junit.xml", "-v", *arguments)
    assert _result(pytester.path)["rollouts"] == 3
    assert chat_server.requests[0].headers["authorization"] == f"Bearer {key}"
    assert key not in done.stdout.str() + done.stderr.str()
    left = [path for path in pytester.path.rglob("*") if path.is_file()]
    assert [path.name for path in left if key.encode() in path.read_bytes()] == []


@EACH_WAY
@pytest.mark.usefixtures("key")
def test_a_secret_that_a_test_has_only_while_it_runs(
    pytester: pytest.Pytester, chat_server: ChatServer, arguments: tuple[str, ...]
) -> None:
    """It is gone when the rollout is written, and the process that asks the model never has it."""
    chat_server.reply = lambda body: str(body["messages"][-1]["content"])
    tests = """
    import os, pytest
    from unittest import mock

    PIECES = ["only-while", "it-runs", "0815"]

    @pytest.fixture
    def account(monkeypatch):
        monkeypatch.setenv("SERVICE_TOKEN", ".".join(PIECES))

    @pytest.mark.skill_task
    @mock.patch.dict(os.environ, {"SERVICE_PASSWORD": "+".join(PIECES)})
    def test_greeting(skill_agent, account):
        for name in ("SERVICE_TOKEN", "SERVICE_PASSWORD"):
            reply = skill_agent(f"Greet Ada with {os.environ[name]}.")
            assert reply == f"Greet Ada with {os.environ[name]}."
        assert False, reply
    """
    write_project(pytester, chat_server, tests, model="openai:worker")
    done = pytester.runpytest_inprocess("--skillopt", "--junitxml=junit.xml", "-v", *arguments)
    assert latest_entries(pytester.path, "rollout")[0]["outcome"] == "failed"
    kept = [path.read_bytes() for path in pytester.path.rglob("*") if path.is_file()]
    for secret in ("only-while.it-runs.0815", "only-while+it-runs+0815"):
        assert secret in str([body["messages"] for body in chat_server.bodies])
        assert secret not in done.stdout.str() + done.stderr.str()
        assert not any(secret.encode() in data for data in kept)


def _result(root: Path) -> dict[str, Any]:
    return latest_result(root)


@EACH_WAY
def test_a_secret_that_is_a_word_of_a_node_id(
    pytester: pytest.Pytester,
    chat_server: ChatServer,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    """Texts are redacted; which rollout it was, of which skill, is still known."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    monkeypatch.setenv("POSTGRES_PASSWORD", "postgres")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    chat_server.reply = lambda body: "It is postgres."
    folder = pytester.mkdir("postgres")
    (folder / "SKILL.md").write_text("---\nname: pg\ndescription: It.\n---\nBe brief.\n")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.skill_task
        def test_postgres(skill_agent, rollout):
            assert skill_agent("What is it?") == "It is postgres."
        """
    )
    command = ("--skillopt", "--skillopt-rollouts=2", "-oskillopt_target=openai:m", *arguments)
    done = pytester.runpytest_inprocess(*command, f"-oskillopt_base_url={chat_server.url}")
    assert done.ret == 0
    (row,) = _result(pytester.path)["skills"][0]["tasks"]
    assert (row["id"], row["before"]["n"]) == (
        "test_a_secret_that_is_a_word_of_a_node_id.py::test_postgres",
        2,
    )
    rollouts = latest_entries(pytester.path, "rollout")
    assert [r["request"]["skill"] for r in rollouts] == ["postgres/SKILL.md"] * 2
    assert all("postgres" not in str(r["transcript"]) for r in rollouts)
