"""A project whose skill has a rule that every task needs, and words that none needs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from run_files import latest_result

if TYPE_CHECKING:
    from pathlib import Path

    from chat_server import Body, ChatServer

RULE = "End every greeting with an exclamation mark."
WORDS = "It is important to know that greetings matter a lot to all who are greeted."
HEAD = "---\nname: greeting\ndescription: Greets.\n---\n# Greeting\n\n"
HELLO = "---\nname: greet\ndescription: Greets.\n---\nSay hello.\n"
SKILL = f"{HEAD}{WORDS}\n\n{RULE}\n"
TESTS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("name", "Ada Ben Cleo Dan Eve Finn Gus Hal".split())
def test_greeting(skill_agent, name):
    assert skill_agent(f"Greet {name}.").endswith("!")
"""


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> pytest.Pytester:
    (pytester.path / "SKILL.md").write_text(SKILL)
    pytester.makepyfile(test_greeting=TESTS)
    pytester.makeini(
        "[pytest]\nskillopt_target = openai:worker\nskillopt_optimizer = openai:thinker\n"
        f"skillopt_base_url = {chat_server.url}\n"
        "skillopt_rollouts = 2\nskillopt_final_rollouts = 8\nskillopt_gate_alpha = 0.2\n"
    )
    return pytester


TWO_MODELS = {"target": "openai:worker", "optimizer": "openai:thinker"}


def write_project(
    pytester: pytest.Pytester, server: ChatServer, tests: str, **settings: object
) -> None:
    """Write a skill that says hello, tests of it, and settings, the server's address included."""
    (pytester.path / "SKILL.md").write_text(HELLO)
    pytester.makepyfile(test_greeting=tests)
    given = {"base_url": server.url, **settings}
    lines = (f"skillopt_{name} = {value}" for name, value in given.items())
    pytester.makeini("\n".join(["[pytest]", *lines]))


def result_of(path: Path) -> dict[str, Any]:
    (skill,) = latest_result(path)["skills"]
    return dict(skill)


def proposal(*lines: str) -> str:
    """Reply of the optimizer: edits that append lines."""
    edits = [{"op": "append", "target": "", "content": line} for line in lines]
    return json.dumps({"reasoning": "every reply lacks it", "edits": edits})


def greet(body: Body) -> str:
    """Reply of the model of the tasks."""
    return f"Hello{'!' if 'exclamation' in body['messages'][0]['content'] else '.'}"


def answer(body: Body) -> str:
    """Reply of both models: the thinker proposes the rule that the tasks need."""
    return proposal(RULE) if body["model"] == "thinker" else greet(body)
