"""A fault of the tests ends a training at step 1; a repetition is said in its first lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from chat_server import system_of
from greetings import TWO_MODELS, proposal, write_project

if TYPE_CHECKING:
    from chat_server import Body, ChatServer

HEAD = """
import json
import re
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

@pytest.fixture
def broken():
    raise RuntimeError("the database is gone")

@pytest.mark.skill_task
@pytest.mark.parametrize("guest", range(8))
"""
BODY = """def test_greeting(skill_agent, guest):
    reply = skill_agent(f"Greet guest {{guest}}.")
    {line}
"""
RULE = 'Answer as JSON, such as {"greeting": "Hello"}.'


def played(body: Body) -> str:
    if body["model"] == "thinker":
        return proposal(RULE)
    return '{"greeting": "Hello"}' if "JSON" in system_of(body) else "Hello."


def train(
    pytester: pytest.Pytester, server: ChatServer, source: str, *more: str
) -> tuple[dict[str, Any], str]:
    server.reply = played
    write_project(pytester, server, HEAD + source, **TWO_MODELS)
    said = pytester.runpytest_inprocess("--skillopt-train", *more).stdout.str()
    runs = sorted((pytester.path / ".skillopt" / "runs").iterdir())
    return json.loads((runs[-1] / "result.json").read_text()), said


FAULTS = {
    "a wrong name": (BODY.format(line="assert replly.startswith('{{')"), "NameError", 14),
    "a wrong attribute": (BODY.format(line="assert reply.starts_with('H')"), "AttributeError", 14),
    "a wrong call": (
        "def test_greeting(skill_agent, guest):\n    skill_agent(prompts='Greet.')\n",
        "TypeError",
        13,
    ),
    "a health check": (
        "@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)\n"
        "@given(st.integers().filter(lambda n: False))\n"
        "def test_greeting(skill_agent, guest, n):\n    assert skill_agent('Greet.')\n",
        "",
        0,
    ),
    "a missing fixture": ("def test_greeting(skill_agent, guest, gone):\n    pass\n", "gone", 10),
    "a broken fixture": (
        "def test_greeting(skill_agent, guest, broken):\n    pass\n",
        "RuntimeError: the database is gone",
        8,
    ),
}

OWN_FAULTS = list(FAULTS)[:4]
"""Faults of the test, not of a fixture."""


@pytest.mark.parametrize("name", FAULTS)
def test_one_exception_in_every_test_ends_the_training_at_step_1(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str, name: str
) -> None:
    source, error, line = FAULTS[name]
    result, said = train(pytester, chat_server, source)
    assert result["status"] == "unmeasured", said
    reason = f"{result['reason']} {result['skills'][0]['reason'] if result['skills'] else ''}"
    assert error in reason
    assert f"test_greeting.py:{line or ''}" in reason
    assert ("correct the test and run it again" in reason) == (name in OWN_FAULTS)
    assert result["rollouts"] <= 24
    assert not [body for body in chat_server.bodies if body["model"] == "thinker"]


@pytest.mark.parametrize(
    "line", ["assert json.loads(reply)['greeting']", "assert re.search('{.*}', reply)[0]"]
)
def test_an_exception_that_a_reply_causes_is_mended_by_the_skill(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str, line: str
) -> None:
    source = BODY.replace("{line}", line).replace("{{guest}}", "{guest}")
    result, said = train(pytester, chat_server, source)
    assert result["status"] == "accepted", said
