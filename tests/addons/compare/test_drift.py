"""Does a skill still help? Today's model on it and on none, against an earlier receipt."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import warm_sessions
from patience import PATIENCE, wait_until

from pytest_skillopt import __version__, cli
from pytest_skillopt.addons.compare.gates import DriftGate
from pytest_skillopt.addons.receipts import Receipt
from pytest_skillopt.gate.data import GateTask, Sample
from pytest_skillopt.gate.engine import run_gate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chat_server import ChatServer

    from pytest_skillopt.gate.data import Draw

NAMES = ["Ada", "Ben", "Cleo", "Dan"]
TESTS = f"""
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("name", {NAMES})
def test_greeting(skill_agent, name):
    assert skill_agent(f"Greet {{name}}.").endswith("!"), "it should end with !"
"""
SKILL = "---\nname: greet\ndescription: Greets.\n---\n# Greeting\n\nEnd with an exclamation mark.\n"
PLACE = "skills/greet/SKILL.md"
WHOLE = 2 * 5 * len(NAMES)
"""Rollouts of one look."""
BRIEFLY = ("-o", "skillopt_final_rollouts=2")
BRIEF = 2 * 2 * len(NAMES)
"""Rollouts of one look with these arguments."""


class Project:
    """Models: ``old`` needs the skill, ``new`` does not, ``bad`` is confused by it."""

    def __init__(self, pytester: pytest.Pytester, server: ChatServer) -> None:
        self.pytester, self.server, self.root = pytester, server, pytester.path
        self.asked: list[str] = []
        server.reply = self.reply
        self.skill = self.root / PLACE
        self.skill.parent.mkdir(parents=True)
        self.skill.write_text(SKILL)
        pytester.makepyfile(test_greeting=TESTS)
        pytester.makeini(
            f"[pytest]\naddopts = -p no:xdist -p no:cacheprovider\nskillopt_skill = {PLACE}\n"
            f"skillopt_base_url = {server.url}\nskillopt_prices = old=1/2, new=1/2, bad=1/2\n"
        )
        self.folder = self.root / ".skillopt-drift" / "skills-greet-skill-md"

    def reply(self, body: dict[str, Any]) -> str:
        self.asked.append(body["model"])
        has_skill = "exclamation" in body["messages"][0]["content"]
        passes = {"old": has_skill, "new": True, "bad": not has_skill}[body["model"]]
        return "Hello!" if passes else "Hello."

    def measure(self, model: str, *arguments: str) -> tuple[int, str]:
        """Run the mode; exit status and what the terminal shows."""
        done = self.pytester.runpytest_inprocess(
            "--skillopt-drift", f"--skillopt-model=openai:{model}", *arguments
        )
        assert self.skill.read_text() == SKILL
        return int(done.ret), " ".join((done.stdout.str() + done.stderr.str()).split())

    def history(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.folder / "history.json").read_text())
        return found


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> Project:
    return Project(pytester, chat_server)


def check_receipt(receipt: dict[str, Any]) -> None:
    """It fits the published schema, and says what was measured."""
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    schema = json.loads((Path(__file__).parents[3] / "docs" / "drift.schema.json").read_text())
    validator(schema).validate(receipt)
    assert not validator(schema).is_valid({**receipt, "verdict": "splendid"})
    assert not validator(schema).is_valid({k: v for k, v in receipt.items() if k != "skill_sha256"})
    assert receipt["skill_sha256"] == hashlib.sha256(SKILL.encode()).hexdigest()
    rows = receipt["tasks"]
    source = json.dumps(sorted([row["id"], row["sha256"]] for row in rows))
    assert receipt["suite_sha256"] == hashlib.sha256(source.encode()).hexdigest()
    assert len({row["sha256"] for row in rows}) == len(NAMES)
    assert [row["with_passed"] for row in rows] == [row["with_n"] for row in rows]
    for arm, rate in (("with_skill", 1.0), ("without", 0.0)):
        found = receipt[arm]
        assert (found["rate"], found["tasks"], found["samples"]) == (rate, 4, 20)
        assert 0 <= found["low"] <= rate <= found["high"] <= 1
        assert (found["k"], found["all_k"]) == (5, rate)
    asked = (20 + 20) * 1e-6
    assert receipt["cost"] > asked
    assert receipt["version"] == __version__


def test_a_skill_that_a_model_needs_and_the_next_one_does_not(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, shown = project.measure("old")
    assert (status, len(project.asked)) == (0, WHOLE), shown
    assert "Still helps" in shown
    check_receipt(json.loads((project.folder / "receipt.json").read_text()))
    status, shown = project.measure("new")
    assert (status, len(project.asked)) == (1, 2 * WHOLE), shown
    assert "No longer needed" in shown
    assert "receipt.json: commit it" in shown

    first, second = project.history()
    assert (first["verdict"], first["changed"], first["compared_with"]) == (
        "still helps",
        False,
        "",
    )
    assert (second["verdict"], second["changed"]) == ("no longer needed", True)
    assert second["compared_with"] == first["run"]
    assert (second["model"], second["k"]) == ("openai:new", 5)
    assert (second["without"]["rate"], second["with_skill"]["rate"]) == (1, 1)
    assert first["without"]["rate"] == 0 < first["with_skill"]["low"]
    assert second["cost"] > 0
    assert second["tasks"][0]["with_n"] == second["tasks"][0]["without_passed"] == 5
    assert first["suite_sha256"] == second["suite_sha256"]
    receipt = json.loads((project.folder / "receipt.json").read_text())
    assert receipt == second
    assert json.loads((project.folder / "badge.json").read_text()) == {
        "schemaVersion": 1,
        "label": "skill",
        "message": "no longer needed",
        "color": "orange",
    }

    pages = [page.read_text() for page in sorted(project.root.glob(".skillopt/runs/*/report.html"))]
    assert ["Over time" in page for page in pages] == [False, True]
    assert "with it: no longer needed (openai:new)" in pages[1]

    monkeypatch.chdir(project.skill.parent)
    capsys.readouterr()
    assert cli.main(["show", "--history"]) == 0
    skill, one, two = capsys.readouterr().out.splitlines()
    assert skill == PLACE
    assert one.endswith("openai:old  0.0% -> 100.0%  still helps")
    assert two.endswith("openai:new  100.0% -> 100.0%  no longer needed")


def test_a_skill_that_confuses_a_model_hurts(project: Project) -> None:
    status, shown = project.measure("bad", *BRIEFLY)
    assert status == 1
    assert "Hurts" in shown
    assert [each["changed"] for each in project.history()] == [True]
    project.measure("bad", *BRIEFLY)
    assert [each["changed"] for each in project.history()] == [True, False]
    assert len(project.asked) == 2 * BRIEF, "a measurement after a receipt draws afresh"


def test_without_an_earlier_model_no_need_is_not_said(project: Project) -> None:
    status, shown = project.measure("new", *BRIEFLY)
    assert (status, len(project.asked)) == (0, 2 * BRIEF), "it looks twice"
    assert shown.count("Cannot tell") == 1
    assert "no earlier model was helped on the same tasks" in shown
    (receipt,) = project.history()
    assert (receipt["verdict"], receipt["changed"]) == ("cannot tell", False)


def test_other_tasks_are_not_compared(project: Project) -> None:
    project.measure("old", *BRIEFLY, "-k", "Ada or Ben or Cleo")
    project.measure("new", *BRIEFLY)
    assert [each["verdict"] for each in project.history()] == ["still helps", "cannot tell"]
    project.pytester.makepyfile(test_greeting=TESTS.replace("it should", "it must"))
    project.measure("old", *BRIEFLY)
    project.pytester.makepyfile(test_greeting=TESTS)
    project.measure("new", *BRIEFLY)
    assert [each["verdict"] for each in project.history()][2:] == ["still helps", "cannot tell"]


def test_a_cap_decides_nothing_and_the_same_command_goes_on(project: Project) -> None:
    status, shown = project.measure("old", "--skillopt-max-calls=11")
    assert (status, len(project.asked)) == (0, 10), "and a probe"
    assert "repeat the same command" in shown
    assert not project.folder.exists()
    assert project.measure("old")[0] == 0
    assert len(project.asked) == WHOLE, "nothing is asked twice"
    assert project.history()[0]["verdict"] == "still helps"


def test_after_a_kill_nothing_that_was_paid_is_asked_again(project: Project) -> None:
    started = threading.Event()
    answer = project.reply

    def kill_at_ten(body: dict[str, Any]) -> str:
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
    assert not project.folder.exists()
    project.server.reply = answer
    assert project.measure("old")[0] == 0
    assert len(project.asked) == WHOLE + 1, "only the call under way is repeated"
    assert project.history()[0]["verdict"] == "still helps"


def test_a_damaged_history_is_refused_before_any_call(project: Project) -> None:
    project.folder.mkdir(parents=True)
    (project.folder / "history.json").write_text("[{}]")
    status, shown = project.measure("new")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "is not a history: restore or delete it" in shown
    assert project.asked == []


def test_several_skills_are_refused(project: Project) -> None:
    project.pytester.makepyfile(
        test_other="import pytest\n@pytest.mark.skill_task(skill='other/SKILL.md')\n"
        "def test_it(skill_agent): skill_agent('Hi')\n"
    )
    (project.root / "other").mkdir()
    (project.root / "other" / "SKILL.md").write_text(SKILL)
    status, shown = project.measure("old")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "--skillopt-drift measures one skill" in shown
    assert project.asked == []


def test_an_infrastructure_error_is_no_verdict() -> None:
    def fail(draws: Sequence[Draw]) -> list[Sample]:
        return [Sample(draw, passed=None) for draw in draws]

    gate = DriftGate([GateTask("a"), GateTask("b")], decision="x")
    assert run_gate(gate, fail).decision == "unmeasured"
    assert gate.word is None


def test_the_published_schema_is_the_one_of_the_code() -> None:
    path = Path(__file__).parents[3] / "docs" / "drift.schema.json"
    assert json.loads(path.read_text()) == Receipt.model_json_schema(by_alias=True), (
        "write the new schema with: python -c 'import json; "
        "from pytest_skillopt.addons.receipts import Receipt; "
        "print(json.dumps(Receipt.model_json_schema(by_alias=True), indent=1))' "
        "> docs/drift.schema.json"
    )
