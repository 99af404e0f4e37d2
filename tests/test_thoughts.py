"""Models whose template opens their thoughts: a reply begins within them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from chat_server import system_of
from greetings import TWO_MODELS, proposal, write_project

if TYPE_CHECKING:
    import pytest
    from chat_server import Body, ChatServer

TESTS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("name", "Ada Ben Cleo Dan Eve Finn Gus Hal".split())
def test_greeting(skill_agent, name):
    assert skill_agent(f"Greet {name}.").json() == {"text": "Hello!"}
"""
RULE, DRAFT = "End with an exclamation mark.", "Shout every word, and then shout all of them again."


def test_a_draft_in_the_thoughts_is_neither_an_answer_nor_an_edit(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str
) -> None:
    def reply(body: Body) -> str:
        if body["model"] == "thinker":
            return f"Perhaps {proposal(DRAFT)}? No.\n</think>\n\n{proposal(RULE)}"
        text = "Hello!" if RULE in system_of(body) else "Hello."
        draft = json.dumps({"text": "Hello, Ada and all who are with her", "note": "a draft"})
        return f"I could say {draft}.\n</think>\n\n{json.dumps({'text': text})}"

    chat_server.reply = reply
    write_project(pytester, chat_server, TESTS, rollouts=1, **TWO_MODELS)
    done = pytester.runpytest_inprocess("--skillopt-train", "-p", "no:xdist")
    assert done.ret == 0, done.stdout.str()
    skill = (pytester.path / "SKILL.md").read_text()
    assert RULE in skill
    assert DRAFT not in skill
    contents = [system_of(body) for body in chat_server.bodies]
    assert not any(DRAFT in content for content in contents), "the draft was tried"
