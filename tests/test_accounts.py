"""What a run cost, by stage and by task, as its result tells."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from chat_server import ChatServer

TESTS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("name", "Ada Ben Cleo Dan Eve Finn Gus Hal Ida Jo Kim Lea".split())
def test_greeting(skill_agent, name):
    assert skill_agent(f"Greet {name}.").endswith("!")
"""


def answer(body: dict[str, Any]) -> str:
    if body["model"] == "thinker":
        edit = {"op": "append", "target": "", "content": "End with an exclamation mark."}
        return json.dumps({"reasoning": "every reply lacks it", "edits": [edit]})
    return "Hello!" if "exclamation" in body["messages"][0]["content"] else "Hello."


@pytest.mark.parametrize("arguments", [("-p", "no:xdist"), ("-n1",)], ids=["here", "worker"])
def test_every_call_is_in_the_rows_of_its_stage_and_of_its_task(
    pytester: pytest.Pytester,
    chat_server: ChatServer,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    chat_server.reply = answer
    pytester.makefile(".md", SKILL="---\nname: greet\ndescription: Greets.\n---\nSay hello.\n")
    pytester.makepyfile(test_greeting=TESTS)
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        skillopt_target = "openai:worker"
        skillopt_optimizer = "openai:thinker"
        skillopt_base_url = "{chat_server.url}"
        """
    )
    assert pytester.runpytest_subprocess("--skillopt-train", *arguments).ret == 0
    (kept,) = (pytester.path / ".skillopt" / "runs").glob("*/result.json")
    result = json.loads(kept.read_text())
    target = {row["stage"]: row["calls"] for row in result["usage"] if row["role"] == "target"}
    assert set(target) >= {"train", "trial", "tape", "final"}
    asked = sum(body["model"] == "worker" for body in chat_server.bodies)
    assert sum(target.values()) == asked
    assert sum(task["calls"] for task in result["skills"][0]["tasks"]) == asked
