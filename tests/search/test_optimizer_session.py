"""Mechanisms of the optimizer in a whole session, with scripted models on a loopback server."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest
from chat_server import system_of

if TYPE_CHECKING:
    from chat_server import Body, ChatServer

SKILL = (
    "---\nname: greeting\ndescription: Greets.\n---\n# Greeting\n\nEnd with an exclamation mark.\n"
)
REMINDER = "Look at the last character before you send."


@pytest.fixture
def project(
    pytester: pytest.Pytester, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    """The target forgets the rule in every third answer, unless it is reminded of it."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    turn = itertools.count()

    def play(body: Body) -> str:
        if body["model"] == "thinker":
            asked = "`lapse`" in system_of(body)
            target = "End with an exclamation mark."
            lapse = {"cause": "lapse", "op": "insert_after", "target": target, "content": REMINDER}
            answer = {"edits": [lapse] if asked else [], "text": ""}
            return json.dumps({"reasoning": "the rule stands there", **answer})
        reminded = REMINDER in system_of(body)
        return "Hello!" if reminded or next(turn) % 3 else "Hello."

    chat_server.reply = play
    pytester.makeini(
        f"""
        [pytest]
        skillopt_target = openai:worker
        skillopt_optimizer = openai:thinker
        skillopt_base_url = {chat_server.url}
        skillopt_final_rollouts = 2
        """
    )
    (pytester.path / "SKILL.md").write_text(SKILL)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.skill_task
        @pytest.mark.parametrize("name", range(16))
        def test_greeting(skill_agent, name):
            '''Greets a guest.'''
            assert skill_agent(f"Greet guest {name}.").endswith("!")
        """
    )
    return pytester


def test_a_lapse_becomes_a_reminder_in_the_appendix(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess(
        "--skillopt-train", "--skillopt-search=batch", "-oskillopt_published=skill_aware: yes"
    )
    assert result.ret == 0
    written = (project.path / "SKILL.md").read_text()
    assert written == (
        f"{SKILL}\n<!-- skillopt:reminders -->\n- {REMINDER}\n<!-- /skillopt:reminders -->\n"
    )
    result.stdout.fnmatch_lines(["*Accepted*"])


def test_a_setting_without_effect_is_named_before_anything_is_paid(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    told = "*skillopt_published: only --skillopt-search=batch follows *"
    planned = ("--skillopt-train", "--collect-only", "-oskillopt_published=accumulation: 2")
    project.runpytest_inprocess(*planned).stdout.fnmatch_lines([told])
    assert not chat_server.calls
    capped = (
        "--skillopt-train",
        "-oskillopt_published=accumulation: 2",
        "--skillopt-max-rollouts=1",
    )
    result = project.runpytest_inprocess(*capped)
    result.stdout.fnmatch_lines([f"skillopt: {told}"])
    other = ("--skillopt-train", "--collect-only", "-oskillopt_published=accumulation: 2")
    batch = project.runpytest_inprocess(*other, "--skillopt-search=batch")
    batch.stdout.no_fnmatch_line(told)


def test_any_text_file_is_trained(project: pytest.Pytester, chat_server: ChatServer) -> None:
    """Without a frontmatter the whole file is body, and there is none afterwards."""
    rule = "End with a full stop."

    def play(body: Body) -> str:
        if body["model"] == "thinker":
            edits = [{"op": "append", "target": "", "content": rule}]
            return json.dumps({"reasoning": "it is missing", "edits": edits, "text": ""})
        return "Hello!" if rule in system_of(body) else "Hello."

    chat_server.reply = play
    (project.path / "AGENTS.md").write_text("How to greet.\n")
    result = project.runpytest_inprocess("--skillopt-train", "-oskillopt_skill=AGENTS.md")
    assert result.ret == 0
    assert (project.path / "AGENTS.md").read_text() == f"How to greet.\n\n{rule}\n"
    assert (project.path / "SKILL.md").read_text() == SKILL
