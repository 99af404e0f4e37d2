"""Does a skill still help? Today's model with it and without, and what earlier runs measured."""

from __future__ import annotations

import json
import random
import re
import shutil
import threading
from typing import TYPE_CHECKING, Any

import compared_project
import pytest
import warm_sessions
from compared_project import PLACE, ComparedProject, has_rule
from patience import PATIENCE, wait_until

from pytest_skillopt import cli
from pytest_skillopt.compare.gates import HelpsGate, highest_gain
from pytest_skillopt.gate.data import GateTask, Sample
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.model.purse import Amounts, Purse
from pytest_skillopt.model.types import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chat_server import Body, ChatServer

    from pytest_skillopt.gate.data import Draw

NAMES = ["Ada", "Ben", "Cleo", "Dan"]
TESTS = f"""
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("name", {NAMES})
def test_greeting(skill_agent, name):
    assert skill_agent(f"Greet {{name}}.").endswith("!"), "it should end with !"
"""
SKILL = compared_project.SKILL.format("End with an exclamation mark.")
WHOLE = 2 * 5 * len(NAMES)
"""Rollouts of one look."""
BRIEFLY = ("-o", "skillopt_final_rollouts=2")
BRIEF = 2 * 2 * len(NAMES)
"""Rollouts of one look with these arguments."""


class Project(ComparedProject):
    """Models: ``old`` needs the skill, ``new`` does not, ``bad`` is confused by it."""

    def __init__(self, pytester: pytest.Pytester, server: ChatServer) -> None:
        prices = "skillopt_prices = old=1/2, new=1/2, bad=1/2\n"
        super().__init__(pytester, server, text=SKILL, tests=TESTS, keys=prices)
        self.asked: list[str] = []
        server.reply = self.reply

    def reply(self, body: Body) -> str:
        self.asked.append(body["model"])
        passes = {"old": has_rule(body), "new": True, "bad": not has_rule(body)}[body["model"]]
        return "Hello!" if passes else "Hello."

    def measure(self, model: str, *arguments: str) -> tuple[int, str]:
        """Run the mode; exit status and what the terminal shows."""
        return self.compare("--skillopt-drift", f"--skillopt-model=openai:{model}", *arguments)

    def results(self) -> list[dict[str, Any]]:
        """Results of all runs, the latest last."""
        files = sorted(self.root.glob(".skillopt/runs/*/result.json"))
        return [json.loads(file.read_text()) for file in files]


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> Project:
    return Project(pytester, chat_server)


def test_a_skill_that_a_model_needs_and_the_next_one_does_not(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, shown = project.measure("old")
    assert (status, len(project.asked)) == (0, WHOLE), shown
    assert "Still helps" in shown
    other = project.root / ".skillopt" / "runs" / "20200101-000000-0000"
    other.mkdir()
    (other / "result.json").write_text("{}")
    assert "It helps: without and with the skill 0.0 % to 100.0 % (+100.0 points)" in shown
    status, shown = project.measure("new")
    assert (status, len(project.asked)) == (1, 3 * WHOLE), shown
    assert "Not shown to help" in shown
    assert "No gain is shown: without and with the skill 100.0 % to 100.0 %" in shown
    assert "with 95 % confidence the skill gains at most 6.3 points" in shown
    shutil.rmtree(other)
    first, second = project.results()
    day = first["started"][:10]
    before = f"{day}: helps openai:old: 0.0 % to 100.0 % with it"
    assert f"earlier, {before}" in shown
    assert f"note: {other.name} is left out of the history: its result.json is not a" in shown
    (now,) = second["skills"]
    assert now["suite"]["before"]["samples"] == now["suite"]["after"]["samples"] == WHOLE
    assert now["patch"] == ""

    monkeypatch.chdir(project.skill.parent)
    capsys.readouterr()
    assert cli.main(["show", "--list"]) == 0
    _, one, two = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (one[2:4], two[2:4]) == (["drift", "accepted"], ["drift", "rejected"])
    assert not (project.root / ".skillopt-drift").exists()


def test_a_skill_that_confuses_a_model_hurts(project: Project) -> None:
    status, shown = project.measure("bad", *BRIEFLY)
    assert (status, len(project.asked)) == (1, BRIEF)
    assert "It hurts: without and with the skill 100.0 % to 0.0 %" in shown
    project.measure("bad", *BRIEFLY)
    assert len(project.asked) == 2 * BRIEF, "a measurement after a verdict draws afresh"


def test_results_alone_are_the_history(project: Project) -> None:
    """A monthly job keeps no more of its runs; one that is damaged or of another skill is none."""
    project.measure("old", *BRIEFLY)
    (kept,) = project.root.glob(".skillopt/runs/*/result.json")
    text = kept.read_text()
    shutil.rmtree(project.root / ".skillopt")
    others = {"other": text.replace(PLACE, "skills/other/SKILL.md"), "damaged": text[:100]}
    days = [f"2025-01-0{n}" for n in range(1, 7)]
    started = json.loads(text)["started"][:10]
    earlier = {f"{day}-000000-0000": text.replace(f'"{started}', f'"{day}') for day in days}
    for name, content in (earlier | others).items():
        folder = project.root / ".skillopt" / "runs" / name
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(content)
    _, shown = project.measure("old", *BRIEFLY)
    assert len(project.asked) == 2 * BRIEF
    told = re.findall(r"earlier, (\S+): helps openai:old: 0.0 % to 100.0 % with it", shown)
    assert told == days[1:], "the latest five"


@pytest.mark.parametrize(
    ("words", "now"),
    [
        (["publish-receipts", "--base=main"], "the monthly job of docs/ci.md reads the results"),
        (["show", "--history"], "pytest-skillopt show --list lists what runs have measured"),
    ],
)
def test_what_kept_receipts_names_what_does_so_now(
    words: list[str], now: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 4
    assert f" is gone: {now}" in capsys.readouterr().err


def test_a_cap_decides_nothing_and_the_same_command_goes_on(project: Project) -> None:
    status, shown = project.measure("old", "--skillopt-max-calls=11")
    assert (status, len(project.asked)) == (1, 8), "a round; the cap leaves no second one"
    assert "Cannot tell" in shown
    assert "No gain is shown in 1 round, and a cap leaves no more of 10" in shown
    assert "repeat the command to go on, after a cap with a higher one" in shown
    assert project.measure("old")[0] == 0
    assert len(project.asked) == WHOLE, "nothing is asked twice"
    undecided, helps = (result["skills"][0] for result in project.results())
    assert (undecided["status"], helps["status"]) == ("unmeasured", "accepted")


def test_after_a_kill_nothing_that_was_paid_is_asked_again(project: Project) -> None:
    started = threading.Event()
    answer = project.reply

    def kill_at_ten(body: Body) -> str:
        if len(project.asked) == 10:
            assert started.wait(PATIENCE)
            victim.kill()
        return answer(body)

    project.server.reply = kill_at_ten
    drift = ("--skillopt-drift", "--skillopt-model=openai:old")
    victim = warm_sessions.start(*drift, cwd=project.root, quiet=True)
    started.set()
    assert victim.wait(PATIENCE) != 0
    wait_until(lambda: len(project.asked) == 11, "the server has not answered the last call")
    project.server.reply = answer
    assert project.measure("old")[0] == 0
    assert len(project.asked) == WHOLE + 1, "only the call under way is repeated"
    assert project.results()[-1]["status"] == "accepted"


def test_several_skills_are_refused(project: Project) -> None:
    project.add_skill()
    status, shown = project.measure("old")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "--skillopt-drift measures one skill" in shown
    assert project.asked == []


def test_an_infrastructure_error_is_no_verdict() -> None:
    def fail(draws: Sequence[Draw]) -> list[Sample]:
        return [Sample(draw, passed=None) for draw in draws]

    gate = HelpsGate([GateTask("a"), GateTask("b")], decision="x")
    assert run_gate(gate, fail).decision == "unmeasured"


def _said(rates: Sequence[tuple[float, float]], seed: int) -> str:
    """Verdict on tasks with these pass rates without and with a skill."""
    chance = random.Random(seed)

    def take(draws: Sequence[Draw]) -> list[Sample]:
        arms = [rates[int(draw.task)][draw.arm == "candidate"] for draw in draws]
        return [Sample(d, chance.random() < p) for d, p in zip(draws, arms, strict=True)]

    tasks = [GateTask(str(number)) for number in range(len(rates))]
    return run_gate(HelpsGate(tasks, decision=str(seed)), take).decision


def test_a_useless_skill_is_seldom_said_to_help() -> None:
    """With the probability alpha at most: more than 20 of 200 have one of 0.002."""
    rates = [(p, p) for p in (0.0, 0.2, 0.5, 0.5, 0.8, 0.9, 1.0, 0.4)]
    said = [_said(rates, seed) for seed in range(200)]
    assert said.count("accepted") <= 20
    assert said.count("unmeasured") == 0


def test_a_skill_that_helps_is_said_to_help() -> None:
    rates = [(p, min(1.0, p + 0.4)) for p in (0.0, 0.2, 0.5, 0.5, 0.8, 0.9, 1.0, 0.4)]
    said = [_said(rates, seed) for seed in range(50)]
    assert said.count("accepted") >= 45


def test_the_bound_of_a_gain_holds_in_most_samples() -> None:
    chance = random.Random(1)
    held = 0
    for _ in range(200):
        arms = [[sum(chance.random() < p for _ in range(10)) for p in (0.7, 0.6)] for _ in "12345"]
        held += highest_gain([(new, 10, old, 10) for new, old in arms]) >= 0.1
    assert held >= 180


def test_an_error_that_a_cap_leaves_without_replacement_is_no_failure_without_the_skill() -> None:
    gate = HelpsGate([GateTask(name) for name in NAMES])
    purse = gate.purse = Purse(Amounts(rollouts=2 * len(NAMES)))

    def take(draws: Sequence[Draw]) -> list[Sample]:
        for draw in draws:
            purse.count_sample(str(draw), Usage(), 0.0)
        return [
            Sample(draw, None if (draw.arm, draw.task) == ("incumbent", "Ada") else True)
            for draw in draws
        ]

    verdict = run_gate(gate, take)
    assert "100.0 % to 100.0 % (0.0 points)" in verdict.reason
    assert verdict.decision == "unmeasured"
