"""Comparisons under a cap: they decide on what it pays for, or say that it is too small."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any

import compared_project
import pytest
from chat_server import asked_in
from compared_project import ComparedProject, has_rule

if TYPE_CHECKING:
    from chat_server import Body, ChatServer

NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn"]
TESTS = f"""
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("name", {NAMES})
def test_greeting(skill_agent, name):
    reply = skill_agent(f"Greet {{name}}. " + "Be kind. " * 500)
    assert reply.endswith("!"), "it should end with !"
"""
RULE = "Greetings end with an exclamation mark.\n"
SKILL = compared_project.SKILL.format(RULE)
POOR = compared_project.SKILL.format("Say hello.")
ROUND = 2 * len(NAMES)


class Project(ComparedProject):
    """A skill that all tasks need, and ``poor.md`` without its rule."""

    def __init__(self, pytester: pytest.Pytester, server: ChatServer) -> None:
        keys = "skillopt_model = openai:m\nskillopt_prices = m=10/10\n"
        super().__init__(pytester, server, text=SKILL, tests=TESTS, keys=keys)
        self.write(POOR, "poor.md")
        self.asked = 0
        server.reply = self.reply

    def reply(self, body: Body) -> str:
        self.asked += 1
        return "Hello!" if has_rule(body) else "Hello."

    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((self.runs()[-1] / "result.json").read_text())
        return result


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> Project:
    return Project(pytester, chat_server)


def price(project: Project) -> dict[str, float]:
    """Return what a rollout of this project takes, from a measurement of its own."""
    project.compare("--skillopt", "--skillopt-rollouts=1", "--skillopt-cache=off")
    usage = max(project.result()["usage"], key=lambda row: row["calls"])
    calls = usage["calls"]
    project.asked = 0
    tokens = (usage["input_tokens"] + usage["output_tokens"]) / calls
    return {"calls": 1.0, "tokens": tokens, "cost": usage["cost"] / calls}


COMPARISONS = {
    "accepted": ("--skillopt-compare", "poor.md", "skills/greet/SKILL.md"),
    "rejected": ("--skillopt-try=poor.md",),
    "helps": ("--skillopt-drift",),
}


@pytest.mark.parametrize(
    ("verdict", "cap"), [("accepted", "calls"), ("rejected", "tokens"), ("helps", "cost")]
)
def test_a_clear_case_is_decided_with_what_a_cap_pays_for(
    project: Project, verdict: str, cap: str
) -> None:
    each = price(project)[cap]
    most = 4 * ROUND
    limit = f"--skillopt-max-{cap}={(most + 1) * each:.9g}"
    if cap != "cost":
        limit = f"--skillopt-max-{cap}={round((most + 2) * each)}"
    _, shown = project.compare(*COMPARISONS[verdict], limit, "--skillopt-cache=off")
    (skill,) = project.result()["skills"]
    assert skill["status"] == {"helps": "accepted"}.get(verdict, verdict), shown
    assert 0 < project.asked <= most + 2


@pytest.mark.parametrize("mode", list(COMPARISONS))
def test_a_cap_that_pays_for_nothing_decides_nothing(project: Project, mode: str) -> None:
    _, shown = project.compare(*COMPARISONS[mode], "--skillopt-max-tokens=10")
    (skill,) = project.result()["skills"]
    assert skill["status"] == "unmeasured", shown
    assert "cap" in skill["reason"]
    assert project.asked == 0
    if needed := re.search(r"at least skillopt_max_tokens = ([\d,]+)", skill["reason"]):
        project.compare(*COMPARISONS[mode], f"--skillopt-max-tokens={needed[1].replace(',', '')}")
    assert (project.asked > 0) == (mode != "helps")


CHECK = "--skillopt-check=HEAD"


@pytest.fixture
def edited(project: Project) -> Project:
    """The project with the rule in git, and an edit without it on disk."""
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "the rule"]):
        subprocess.run(["git", *words], cwd=project.root, check=True)
    project.text = POOR
    project.skill.write_text(POOR)
    return project


def test_a_check_fails_within_its_cap_on_an_edit_that_breaks_all(edited: Project) -> None:
    limit = 2 * ROUND + 2
    bound = round(limit * price(edited)["tokens"])
    status, shown = edited.compare(CHECK, f"--skillopt-max-tokens={bound}", "--skillopt-cache=off")
    assert status == 1, shown
    assert "worse" in edited.result()["skills"][0]["reason"]
    assert edited.asked <= limit


def test_a_check_whose_cap_pays_for_a_part_says_so(edited: Project) -> None:
    edited.server.reply = lambda body: "Hello!"
    status, shown = edited.compare(CHECK, f"--skillopt-max-calls={2 * ROUND}")
    assert "a cap leaves 1 round of 3" in edited.result()["skills"][0]["reason"], shown
    assert status == 1, "a check without enough evidence fails"
    assert edited.compare(CHECK)[0] == 0


GO_ON = "repeat the command to go on, after a cap with a higher one"
CUT = (
    "a cap ended the comparison: skillopt_max_rollouts = 20 pays for 20 rollouts, and it takes up "
    f"to 450; {GO_ON}"
)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (COMPARISONS["accepted"], CUT),
        (("--skillopt-try=poor.md",), CUT),
        (("--skillopt-drift",), f"a cap leaves no more of 10: .*; {GO_ON}"),
        (("--skillopt-aa",), f"the caps paid for 1 rollout of 3 a task; {GO_ON}"),
    ],
)
def test_what_a_cap_has_cut_short_says_so_and_how_it_goes_on(
    project: Project, mode: tuple[str, ...], said: str
) -> None:
    """Half of the greetings end as they should without the rule, and all with it."""
    asked: Counter[str] = Counter()

    def reply(body: Body) -> str:
        name = asked_in(body)
        asked[name] += not has_rule(body)
        return "Hello!" if has_rule(body) or asked[name] % 2 else "Hello."

    project.server.reply = reply
    _, shown = project.compare(*mode, "--skillopt-max-rollouts=20")
    assert re.search(said, shown), shown
    assert shown.count(GO_ON) == 1
    assert "a further try today" not in shown
    _, shown = project.compare(*mode)
    assert GO_ON not in shown


def test_the_noise_is_measured_in_as_many_rounds_as_a_cap_pays_for(project: Project) -> None:
    _, shown = project.compare("--skillopt-aa", f"--skillopt-max-calls={2 * ROUND + 4}")
    (skill,) = project.result()["skills"]
    assert skill["status"] == "measured", shown
    assert {(row["before"]["n"], row["after"]["n"]) for row in skill["tasks"]} == {(2, 2)}
    assert "the caps paid for 2 rollouts of 3 a task" in shown
    assert skill["noise_floor"] is not None


def test_a_cap_within_a_round_leaves_the_rounds_before_as_the_noise(project: Project) -> None:
    """Replies of the second round are longer than the first has told."""
    each = price(project)["tokens"]

    def reply(body: Body) -> str:
        return project.reply(body) if project.asked < ROUND else "Hello " * round(each) + "!"

    project.server.reply = reply
    limit = f"--skillopt-max-tokens={round(3.2 * ROUND * each)}"
    _, shown = project.compare("--skillopt-aa", limit, "--skillopt-cache=off")
    (skill,) = project.result()["skills"]
    assert skill["status"] == "measured", shown
    assert {(row["before"]["n"], row["after"]["n"]) for row in skill["tasks"]} == {(1, 1)}
    assert "the caps paid for 1 rollout of 3 a task" in shown
