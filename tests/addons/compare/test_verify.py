"""A skill that was trained on one model is compared on others, before it is written."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import warm_sessions
from chat_server import Answer
from patience import PATIENCE, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from chat_server import ChatServer

RULE = "End every greeting with an exclamation mark."
NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal"]
TESTS = f"""
import pytest

@pytest.mark.parametrize("name", {NAMES})
@pytest.mark.skill_task
def test_greeting(skill_agent, name):
    reply = skill_agent(f"Greet {{name}}")
    assert reply.endswith("!"), f"no exclamation mark: {{reply}}"
"""
BOTH = ("-o", "skillopt_verify=openai:dear, openai:odd")


def answer(body: dict[str, Any]) -> str:
    """All targets but ``odd`` follow the rule of the skill; ``odd`` passes without it only."""
    if body["model"] == "thinker":
        edit = {"op": "append", "target": "", "content": RULE}
        return json.dumps({"reasoning": "every reply lacks it", "edits": [edit]})
    told = "exclamation" in body["messages"][0]["content"]
    return f"{body['messages'][-1]['content']}{'!' if told != (body['model'] == 'odd') else '.'}"


class Project:
    def __init__(self, pytester: pytest.Pytester, server: ChatServer) -> None:
        self._pytester = pytester
        self.path = pytester.path
        self.server = server
        server.reply = answer
        self.skill = self.path / "SKILL.md"
        self.skill.write_text("---\nname: greet\ndescription: Greets.\n---\n# Greeting\n")
        (self.path / "test_greeting.py").write_text(TESTS)
        pytester.makepyprojecttoml(
            f"""
            [tool.pytest.ini_options]
            skillopt_target = "openai:worker"
            skillopt_optimizer = "openai:thinker"
            skillopt_base_url = "{server.url}"
            skillopt_prices = "worker=1/1, thinker=1/1, dear=10/10, odd=10/10"
            skillopt_patience = 1
            skillopt_rollouts = 1
            """
        )

    def run(self, *arguments: str, mode: str = "--skillopt-train") -> tuple[int, str]:
        plain = ("-p", "no:cacheprovider", *(() if "-n1" in arguments else ("-p", "no:xdist")))
        done = self._pytester.runpytest_inprocess(*mode.split(), *plain, *arguments)
        return int(done.ret), " ".join((done.stdout.str() + done.stderr.str()).split())

    def start(self, *arguments: str) -> warm_sessions.Session:
        command = ("--skillopt-train", "-p", "no:xdist", *arguments)
        return warm_sessions.start(*command, cwd=self.path, quiet=True)

    @property
    def runs(self) -> list[Path]:
        return sorted((self.path / ".skillopt" / "runs").glob("*"))

    @property
    def result(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.runs[-1] / "result.json").read_text())
        return data

    @property
    def asked(self) -> Counter[str]:
        """Calls of the targets, by model."""
        return Counter(body["model"] for body in self.server.bodies if body["model"] != "thinker")


@pytest.fixture
def project(
    pytester: pytest.Pytester, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> Project:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return Project(pytester, chat_server)


def test_an_accepted_skill_is_compared_on_each_target_and_every_report_has_a_row(
    project: Project,
) -> None:
    """On workers, whose tests are told the target if they have an agent of their own.

    A target that fails loses no acceptance: the rule is ``report``.
    """

    def reply(body: dict[str, Any]) -> str | Answer:
        return Answer.error(401, "no more") if body["model"] == "gone" else answer(body)

    project.server.reply = reply
    (project.path / "test_greeting.py").write_text(
        TESTS.replace("skill_agent, name", "skill, rollout, name, skill_agent").replace(
            'skill_agent(f"Greet {name}")',
            'skill_agent(f"Greet {name}")\n    rollout.record("user", rollout.target.model)',
        )
    )
    three = "skillopt_verify=openai:dear, openai:odd, openai:gone"
    status, shown = project.run("-o", three, "-n1")
    assert status == 0, shown
    assert "the last comparison is repeated on openai:dear, openai:odd, openai:gone" in shown
    (skill,) = project.result["skills"]
    assert (skill["status"], skill["written"]) == ("accepted", True)
    dear, odd, gone = skill["targets"]
    assert gone["verdict"] == "not measured"
    assert "no more" in gone["reason"]
    assert (dear["target"], dear["verdict"]) == ("openai:dear", "not worse")
    assert (odd["target"], odd["verdict"]) == ("openai:odd", "worse")
    assert dear["suite"]["before"]["rate"] == 0
    assert dear["suite"]["after"]["rate"] == 1
    assert 0 < dear["suite"]["after"]["low"] < 1 == dear["suite"]["after"]["high"]
    assert project.asked["dear"] == dear["rollouts"] == 2 * 2 * 6, "two rounds of both versions"
    assert dear["cost"] > 0
    assert [row["calls"] for row in project.result["usage"] if row["stage"] == "targets"] == [
        project.asked["dear"] + project.asked["odd"]
    ]
    test = {row["id"].partition("[")[2][:-1] for row in skill["tasks"] if row["split"] == "test"}
    others = [request for request in project.server.requests if request.body["model"] != "worker"]
    assert test
    assert not test & {request.last.removeprefix("Greet ") for request in others}
    assert "openai:dear before 0.0 %" in shown
    assert "after 100.0 %" in shown
    for name in ("summary.md", "report.html"):
        text = (project.runs[-1] / name).read_text().replace("\\", "")
        row = next(line for line in text.split("\n") if "openai:odd" in line and "before" in line)
        assert "100.0 %" in row, name
        assert "not worse" in text, name
    lines = (project.runs[-1] / "journal.jsonl").read_text().splitlines()
    rollouts = [line["data"] for line in map(json.loads, lines) if line["kind"] == "rollout"]
    told = {(one["request"]["target"], one["transcript"][-1]["content"]) for one in rollouts}
    assert told == {("", "worker"), ("openai:dear", "dear"), ("openai:odd", "odd")}


def test_with_none_worse_a_credible_loss_refuses_the_write(project: Project) -> None:
    before = project.skill.read_text()
    none_worse = ("-o", "skillopt_verify=openai:odd", "-o", "skillopt_verify_rule=none_worse")
    status, shown = project.run(*none_worse)
    (skill,) = project.result["skills"]
    assert (status, skill["status"], skill["written"]) == (0, "rejected", False)
    assert skill["reason"].startswith("better, but it is worse on openai:odd (skillopt_verify_rule")
    assert [row["verdict"] for row in skill["targets"]] == ["worse"]
    assert skill["after"] == skill["before"]
    assert project.skill.read_text() == before
    assert "Nothing to merge" in shown


NONE_WORSE = ("-o", "skillopt_verify=openai:dear", "-o", "skillopt_verify_rule=none_worse")


def test_missing_evidence_is_never_a_yes_and_a_resumed_run_pays_only_the_rest(
    project: Project,
) -> None:
    before, broken = project.skill.read_text(), [True]

    def reply(body: dict[str, Any]) -> str | Answer:
        gone = broken[0] and body["model"] == "dear" and project.asked["dear"] > 10
        return Answer.error(401, "no more") if gone else answer(body)

    project.server.reply = reply
    off = ("--skillopt-cache=off",)
    status, shown = project.run(*NONE_WORSE, *off)
    (skill,) = project.result["skills"]
    assert (status, skill["status"], skill["written"]) == (1, "unmeasured", False), shown
    assert "could not be compared on openai:dear" in skill["reason"]
    assert skill["targets"][0]["verdict"] == "not measured"
    assert project.skill.read_text() == before
    broken[0], asked = False, project.asked
    status, shown = project.run(*NONE_WORSE, *off, f"--skillopt-resume={project.runs[-1].name}")
    (skill,) = project.result["skills"]
    assert (status, skill["status"], skill["written"]) == (0, "accepted", True), shown
    assert project.asked["worker"] == asked["worker"]
    assert project.asked["dear"] == 24 + 1, "only the refused call is made once more"


def test_a_cap_holds_over_all_and_leaves_room_for_every_target(project: Project) -> None:
    """Without one it takes 108 rollouts."""
    both = ("-o", "skillopt_verify=openai:dear, openai:other")
    status, shown = project.run(*both, "--skillopt-max-rollouts=90")
    found = project.result
    (skill,) = found["skills"]
    assert (status, skill["status"], skill["written"]) == (0, "accepted", True), shown
    assert found["rollouts"] <= 90
    assert [row["verdict"] for row in skill["targets"]] == ["not worse", "not worse"]


def test_a_run_killed_while_it_verifies_pays_nothing_twice(project: Project) -> None:
    started = threading.Event()

    def kill_at_twelve(body: dict[str, Any]) -> str:
        if body["model"] == "dear" and project.asked["dear"] == 12:
            assert started.wait(PATIENCE)
            process.kill()
        return answer(body)

    project.server.reply = kill_at_twelve
    arguments = (*NONE_WORSE, "--skillopt-cache=off")
    process = project.start(*arguments)
    started.set()
    assert process.wait(PATIENCE) == -signal.SIGKILL
    wait_until(lambda: project.asked["dear"] == 12, "the last call has not arrived")
    project.server.reply, before = answer, project.server.calls
    status, shown = project.run(*arguments, f"--skillopt-resume={project.runs[-1].name}")
    assert status == 0, shown
    assert project.skill.read_text().endswith(f"{RULE}\n")
    assert project.server.calls == before + 13, "only the call that was under way is repeated"
    (row,) = project.result["skills"][0]["targets"]
    assert (row["verdict"], row["rollouts"]) == ("not worse", 24)
    assert (row["suite"]["before"]["rate"], row["suite"]["after"]["rate"]) == (0, 1)


WRONG = [
    ("openai:worker", "openai:worker is the same model as the target"),
    ("openai:dear,openai:dear@{url}", "is the same model as openai:dear"),
    ("nobody:dear", "write provider:model"),
    ("harness:codex", "no task runs the agent of harness:codex"),
    ("openai:cheap", "no price is known for cheap"),
]


@pytest.mark.parametrize(("setting", "said"), WRONG)
def test_a_wrong_target_is_known_before_anything_is_paid(
    project: Project, setting: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_skillopt.addons.harness.adapters.installed", lambda name: name)
    verify = f"skillopt_verify={setting.format(url=project.server.url)}"
    status, shown = project.run("-o", verify, "--skillopt-max-cost=9")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert said in shown
    assert project.server.calls == 0
    assert project.runs == [], "and no run is left that could be continued"


def test_a_model_of_the_conftest_is_not_taken_for_another_one(project: Project) -> None:
    (project.path / "conftest.py").write_text(
        """
from pytest_skillopt import Completion

class Canned:
    name, fingerprint, simulated = "canned:1", "1", True
    def complete(self, messages, *, sample, **details):
        return Completion(text="Hello!")

def pytest_skillopt_client(config, role):
    return Canned() if role == "target" else None
"""
    )
    status, shown = project.run("-o", "skillopt_verify=canned:2")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "canned:2 is the same model as the target" in shown


def test_the_plan_counts_the_targets_with_their_prices(project: Project) -> None:
    _, alone = project.run("--collect-only")
    _, shown = project.run(*BOTH, "--collect-only")
    assert project.server.calls == 0
    for name in ("dear", "odd"):
        line = f"on openai:{name} after an acceptance: at most 72 rollouts of these, about $1.44"
        assert line in shown
    most = [
        int(text.split("rollouts: about ")[1].split()[3].rstrip(";")) for text in (alone, shown)
    ]
    assert most[1] - most[0] == 2 * 72
    _, shown = project.run(*BOTH, "--collect-only", mode="--skillopt-compare none SKILL.md")
    assert "on openai:dear: at most 80 rollouts of these" in shown


def test_a_comparison_on_several_targets_prints_the_matrix(project: Project) -> None:
    (project.path / "better.md").write_text(f"{project.skill.read_text()}\n{RULE}\n")
    status, shown = project.run(*BOTH, mode="--skillopt-compare SKILL.md better.md")
    assert status == 0, shown
    (skill,) = project.result["skills"]
    assert [row["target"] for row in skill["targets"]] == [
        *("openai:worker", "openai:dear", "openai:odd")
    ]
    assert [row["verdict"] for row in skill["targets"]] == ["better", "better", "not better"]
    assert "target version pass rate 95 % interval points cost verdict" in shown
    assert "openai:worker first 0.0 %" in shown
    assert "openai:odd first 100.0 %" in shown
    assert "-100.0 $" in shown
    assert "Difference of +100.0 points" in shown
