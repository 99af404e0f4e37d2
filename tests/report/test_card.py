"""The reports of one whole training, as a reviewer of its edits reads them."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from chat_server import asked_in, system_of

if TYPE_CHECKING:
    from pathlib import Path

    from chat_server import Body, ChatServer

RULES = {
    "End every greeting with an exclamation mark.": "the mark is missing",
    "Call every guest by the title of Captain.": "the title is missing",
}
TESTS = """
import pytest

SPLITS = ["train", "val", "train", "test"] * 4
TASKS = [
    pytest.param(n, marks=pytest.mark.skill_task(split=split)) for n, split in enumerate(SPLITS, 8)
]

@pytest.mark.parametrize("n", TASKS)
def test_n(skill_agent, n):
    assert skill_agent(f"Greet guest {n}.") == "Hello Captain!"
"""


def rule_for(body: Body, guest: str) -> str:
    """The rule that the guest needs whom a pattern finds in a request."""
    (number,) = set(re.findall(guest, asked_in(body)))
    return list(RULES)[int(number) // 4 % 2]


@pytest.fixture
def reports(
    pytester: pytest.Pytester, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Path]:
    """The terminal and the run of a training that needs two edits, each for half of the guests."""

    def play(body: Body) -> str:
        if body["model"] == "worker":
            skill = system_of(body)
            return "Hello Captain!" if rule_for(body, r"guest (\d+)") in skill else "Hello."
        rule = rule_for(body, r"test_n\[(\d+)\]")
        edits = [{"op": "append", "target": "", "content": rule}]
        return json.dumps({"reasoning": RULES[rule], "edits": edits})

    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-test")
    chat_server.reply = play
    skill = pytester.path / "SKILL.md"
    skill.write_text("---\nname: a\ndescription: A.\n---\n# Greeting\n\nSay hello.\n")
    pytester.makepyfile(test_guests=TESTS)
    models = ["--skillopt-target=openai:worker", "--skillopt-optimizer=openai:thinker"]
    server = f"-oskillopt_base_url={chat_server.url}"
    result = pytester.runpytest_inprocess("--skillopt-train", "-p", "no:xdist", *models, server)
    assert all(rule in skill.read_text() for rule in RULES)
    (run,) = (pytester.path / ".skillopt" / "runs").iterdir()
    return result.stdout.str(), run


def test_counts_edits_and_names_are_said_once_and_in_order(reports: tuple[str, Path]) -> None:
    terminal, run = reports
    summary = re.sub(r"[\\\u200b]", "", (run / "summary.md").read_text())
    page = (run / "report.html").read_text()

    # One count of the tasks: those of the suite; the test split stands apart.
    (skill,) = json.loads((run / "result.json").read_text())["skills"]
    changes = Counter(task["change"] for task in skill["tasks"] if task["split"] != "test")
    assert changes.keys() <= {"fixed", "likely", "undecided"}
    assert changes.total() == 12
    open_ones = "".join(f" {changes[c]} {c}," for c in ("likely", "undecided") if changes[c])
    counts = f"{changes['fixed'] or 'None'} fixed,{open_ones} none broken."
    told = re.sub(r"\s+", " ", terminal)
    assert "With the new skill the 12 tasks pass about" in told
    assert counts in told
    assert "Test split, which no edit has seen: 4 fixed, none broken." in told
    assert counts in summary
    assert "<summary>Test split, which no edit has seen: 4 fixed, none broken</summary>" in summary

    # An edit that nothing was known of before it was accepted does not count as one not kept.
    assert "not kept" not in terminal + summary + page

    # A reason stands beside its own line, with the tasks that wanted this line.
    for rule, why in RULES.items():
        said = rf"^- `{rule}`.*: {why.capitalize()}\. Called for by `test_guests"
        assert re.search(said, summary, re.MULTILINE)
        assert re.search(rf"{rule}.{{0,200}}{why.capitalize()}", page, re.DOTALL)

    # Names once in each list, and of tasks with the same counts as people count.
    lists = re.findall(r"(?:^\|.*`test_guests.*\n)+", summary, re.MULTILINE)
    lists += re.findall(r"<tbody>.*?</tbody>", re.sub("<wbr>|</?bdi>", "", page), re.DOTALL)[1:3]
    assert len(lists) == 4
    for names in lists:
        rows = re.findall(r"(.*)test_n\[(\d+)\]", names)
        assert len({number for _, number in rows}) == len(rows) > 1
        for (counts, number), (next_counts, next_number) in itertools.pairwise(rows):
            assert counts != next_counts or int(number) < int(next_number)
