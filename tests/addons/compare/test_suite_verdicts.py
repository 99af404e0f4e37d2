"""A suite that says something: what a task tells of the skill."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from chat_server import ChatServer

COMPARE = ("--skillopt-compare", "none", "words/SKILL.md")
BRIEFLY = ("-o", "skillopt_final_rollouts=1")
SUITE = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("word", ["always", "never", "told", "flaky"])
def test_word(skill_agent, word):
    assert skill_agent(word) == "yes"

@pytest.mark.skill_task
def test_judged(skill_agent, skill_judge):
    assert skill_judge("It is polite.", skill_agent("told")).score >= 0.5
"""


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> pytest.Pytester:
    """A model that answers by the asked word, with and without the skill."""
    folder = pytester.mkdir("words")
    (folder / "SKILL.md").write_text("---\nname: words\n---\nSay yes.\n")
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        skillopt_model = "openai:m"
        skillopt_base_url = "{chat_server.url}"
        addopts = "-p no:cacheprovider -p no:xdist"
        """
    )
    turns = itertools.cycle(["yes", "no"])

    def reply(body: dict[str, Any]) -> str:
        text = str(body["messages"])
        if "response_format" in body:
            return json.dumps({"score": 1.0, "reason": "polite"})
        asked = body["messages"][-1]["content"]
        told = "yes" if "Say yes" in text else "no"
        return {"always": "yes", "never": "no", "told": told}.get(asked) or next(turns)

    chat_server.reply = reply
    return pytester


def test_a_comparison_with_no_skill_gives_each_task_a_verdict(project: pytest.Pytester) -> None:
    project.makepyfile(test_words=SUITE)
    result = project.runpytest_inprocess(*COMPARE, "-o", "skillopt_final_rollouts=4")
    said = " ".join(result.stdout.str().split())
    note = said[said.index("note: what a task tells") :]
    for verdict in (
        "tells the skill from no skill (1): test_words.py::test_word[told] - keep it",
        "always passes (2): test_words.py::test_judged, test_words.py::test_word[always] - make it",
        "never passes (1): test_words.py::test_word[never] - check the test itself",
        "is flaky (1): test_words.py::test_word[flaky] - pin what varies",
        "asks the judge in each sample (1): test_words.py::test_judged - check what a script can",
    ):
        assert verdict in note


JUDGED = """
import pytest

def polite(judge, reply):
    return judge("It is polite.", reply).score >= 0.5

@pytest.mark.skill_task
def test_in_a_helper(skill_agent, skill_judge):
    assert polite(skill_judge, skill_agent("always"))

@pytest.mark.skill_task
def test_on_statements(skill_agent, skill_judge):
    grades = skill_judge.statements(["It is polite."], skill_agent("always"))
    assert all(holds for holds, _ in grades)

@pytest.mark.skill_task
def test_plain_before(skill_agent, skill_judge):
    reply = skill_agent("never")
    assert reply == "yes"
    assert polite(skill_judge, reply)

@pytest.mark.skill_task
def test_no_judge(skill_agent):
    assert skill_agent("never") == "yes"
"""


def test_a_task_that_asks_the_judge_in_each_sample_is_named(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    answer = chat_server.reply

    def reply(body: dict[str, Any]) -> Any:
        if "response_format" not in body:
            return answer(body)
        grade = {"number": 1, "evidence": "it is rude", "holds": False}
        statements = "grades" in json.dumps(body["response_format"])
        return json.dumps({"grades": [grade]} if statements else {"score": 0.1, "reason": "rude"})

    chat_server.reply = reply
    project.makepyfile(test_words=JUDGED)
    run = project.runpytest_inprocess(*COMPARE, *BRIEFLY)
    said = " ".join(run.stdout.str().split())
    names = ("in_a_helper", "on_statements")
    listed = ", ".join(f"test_words.py::test_{name}" for name in names)
    assert f"asks the judge in each sample (2): {listed} - check what a script can" in said
    again = " ".join(project.runpytest_inprocess(*COMPARE, *BRIEFLY).stdout.str().split())
    assert f"asks the judge in each sample (2): {listed}" in again  # replies from the cache
