"""Taking out of a skill what no task needs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gate_draws import taker, tasks
from greetings import HEAD, RULE, WORDS, greet, project, result_of

from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.plugins.shorten.search import ShorterGate, non_inferior

if TYPE_CHECKING:
    import pytest
    from chat_server import Body, ChatServer

    from pytest_skillopt.gate.data import Draw

__all__ = ["project"]


def reply(*edits: dict[str, str]) -> Any:
    """Replies of the models; the optimizer's are the edits."""

    def answer(body: Body) -> str:
        if body["model"] == "thinker":
            return json.dumps({"reasoning": "nobody needs it", "edits": edits})
        return greet(body)

    return answer


def test_what_no_task_needs_goes_and_what_they_need_stays(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    chat_server.reply = reply(
        {"op": "delete", "target": RULE, "content": ""},
        {"op": "delete", "target": WORDS, "content": ""},
        {"op": "append", "target": "", "content": "More words."},
    )
    assert (
        project.runpytest_inprocess(
            "--skillopt-train", "--skillopt-search=shorten", "-p", "no:xdist"
        ).ret
        == 0
    )
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
    assert "Cost of a rollout, before: " in summary


def test_the_test_knows_what_is_no_worse() -> None:
    same = [(6, 6, 6, 6)] * 12
    assert non_inferior(same) < 0.0125
    assert non_inferior(same[:2]) > 0.05, "too few samples show nothing"
    assert non_inferior([(5, 6, 6, 6)] * 12) > 0.5
    assert non_inferior([(0, 6, 6, 6), *same[1:]]) > 0.5, "one task broke"


def test_a_thin_loss_on_many_tasks_is_not_shown_to_be_none() -> None:
    def thin(draw: Draw) -> bool:
        return draw.arm == "incumbent" or draw.index % 5 > 0

    assert run_gate(ShorterGate(tasks(12)), taker(thin)).decision == "rejected"
    assert run_gate(ShorterGate(tasks(12)), taker(lambda draw: True)).decision == "accepted"
