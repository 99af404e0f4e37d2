"""Taking out of a skill what no task needs, and what a rollout may cost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.cli import main
from pytest_skillopt.gate.shorter import non_inferior

if TYPE_CHECKING:
    from pathlib import Path

    from chat_server import ChatServer

RULE = "End every greeting with an exclamation mark."
WORDS = "It is important to know that greetings matter a lot to all who are greeted."
HEAD = "---\nname: greeting\ndescription: Greets.\n---\n# Greeting\n\n"
SKILL = f"{HEAD}{WORDS}\n\n{RULE}\n"
TESTS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("name", "Ada Ben Cleo Dan Eve Finn Gus Hal Ida Jo Kim Lea".split())
def test_greeting(skill_agent, name):
    assert skill_agent(f"Greet {name}.").endswith("!")
"""


@pytest.fixture
def project(
    pytester: pytest.Pytester, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    (pytester.path / "SKILL.md").write_text(SKILL)
    pytester.makepyfile(test_greeting=TESTS)
    pytester.makeini(
        "[pytest]\nskillopt_target = openai:worker\nskillopt_optimizer = openai:thinker\n"
        f"skillopt_base_url = {chat_server.url}\n"
    )
    return pytester


def reply(*edits: dict[str, str]) -> Any:
    def answer(body: dict[str, Any]) -> str:
        if body["model"] == "thinker":
            return json.dumps({"reasoning": "nobody needs it", "edits": edits})
        return f"Hello{'!' if 'exclamation' in body['messages'][0]['content'] else '.'}"

    return answer


def result_of(path: Path) -> dict[str, Any]:
    run = max((path / ".skillopt" / "runs").iterdir())
    (skill,) = json.loads((run / "result.json").read_text())["skills"]
    return dict(skill)


def test_what_no_task_needs_goes_and_what_they_need_stays(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    chat_server.reply = reply(
        {"op": "delete", "target": RULE, "content": ""},
        {"op": "delete", "target": WORDS, "content": ""},
        {"op": "append", "target": "", "content": "More words."},
    )
    assert main(["shorten", "-p", "no:xdist"]) == 0
    assert (project.path / "SKILL.md").read_text() == f"{HEAD}\n{RULE}\n"
    skill = result_of(project.path)
    assert skill["written"]
    assert skill["verdict"]["gate"] == "shorten"
    assert skill["verdict"]["reason"].startswith("no worse by 5 points or more")
    assert {row["target"] or row["content"]: row["status"] for row in skill["edits"]} == {
        RULE: "rejected",
        WORDS: "accepted",
        "More words.": "refused",
    }
    assert skill["cost"]["tokens_after"] < skill["cost"]["tokens_before"]
    summary = (max((project.path / ".skillopt/runs").iterdir()) / "summary.md").read_text()
    assert "A rollout took" in summary


def test_a_skill_that_needs_every_word_stays(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    chat_server.reply = reply({"op": "delete", "target": RULE, "content": ""})
    project.runpytest_inprocess("--skillopt-train", "--skillopt-search=shorten", "-p", "no:xdist")
    assert (project.path / "SKILL.md").read_text() == SKILL
    assert result_of(project.path)["status"] == "unchanged"


@pytest.mark.parametrize(("bound", "written"), [("20%", False), ("900", True)])
def test_a_better_skill_that_costs_too_much_is_not_written(
    project: pytest.Pytester, chat_server: ChatServer, bound: str, written: bool
) -> None:
    (project.path / "SKILL.md").write_text(f"{HEAD}Say hello.\n")
    chat_server.reply = reply({"op": "append", "content": f"{RULE} " + "So do it. " * 20})
    project.runpytest_inprocess(
        "--skillopt-train", "-p", "no:xdist", "-o", f"skillopt_max_cost_increase={bound}"
    )
    skill = result_of(project.path)
    assert skill["written"] is written
    assert ("skillopt_max_cost_increase" in skill["reason"]) is not written


@pytest.mark.parametrize("bound", ["much", "-5%"])
def test_a_bound_that_is_none_is_a_usage_error(project: pytest.Pytester, bound: str) -> None:
    result = project.runpytest_inprocess(
        "--skillopt-train", "-o", f"skillopt_max_cost_increase={bound}"
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*skillopt_max_cost_increase*"])


def test_the_test_knows_what_is_no_worse() -> None:
    same = [(6, 6, 6, 6)] * 12
    assert non_inferior(same) < 0.0125
    assert non_inferior(same[:2]) > 0.05, "too few samples show nothing"
    assert non_inferior([(5, 6, 6, 6)] * 12) > 0.5
    assert non_inferior([(0, 6, 6, 6), *same[1:]]) > 0.5, "one task broke"
