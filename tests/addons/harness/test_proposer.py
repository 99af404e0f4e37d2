"""A coding agent that proposes edits beside the analysts: scripted ones, and Codex and Claude."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import warm_sessions
from harness_project import CALL, KEY, STUB
from model_server import ModelServer, Seen
from patience import PATIENCE, wait_until

from pytest_skillopt.addons.harness.adapters import KNOWN, bundled_path, installed
from pytest_skillopt.addons.harness.proposal import edits_between
from pytest_skillopt.skill.document import Document

if TYPE_CHECKING:
    from pathlib import Path

    from chat_server import ChatServer

RULE = "End every greeting with an exclamation mark."
ODD_KEY = "sk-proj-" + "a1B2c3D4" * 4
FUSS = "Take great care over the tone of every greeting, whoever the guest may be."
NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal"]
TESTS = f"""
import pytest

@pytest.mark.parametrize("name", {NAMES})
@pytest.mark.skill_task
def test_greeting(skill_agent, name):
    reply = skill_agent(f"Greet {{name}}")
    assert reply.endswith("!"), f"no exclamation mark: {{reply}}"
"""
BEGIN = """
import pathlib, subprocess
here = pathlib.Path.cwd()
skill = here / "skill" / "SKILL.md"
told = pathlib.Path(os.environ["TOLD"])
told.write_text((told.read_text() if told.exists() else "") + "begun\\n")
call("which rule is missing?")
def rollout(number=1):
    return subprocess.run(["./rollout", str(number)], capture_output=True, text=True).stdout
def add(text):
    skill.write_text(skill.read_text() + text)
"""
"""Beginning of every scripted agent: it notes that it ran, and calls the optimizer's model."""
WORK = f"""
files = {{str(p.relative_to(here)): p.read_text() for p in here.rglob("*") if p.is_file()}}
before = rollout(1)
add("\\n{RULE}\\n")
after = rollout(1)
(here / "tasks.json").write_text(written({{"exclamation mark": [1]}}))
(told.parent / "files.json").write_text(written([files, before, after]))
say(text="Every reply lacked an exclamation mark.")
"""


class Project:
    """A training whose analysts propose only what is of no use."""

    def __init__(self, pytester: pytest.Pytester, server: ChatServer) -> None:
        self._pytester, self.path, self.server = pytester, pytester.path, server
        server.reply = self.reply
        self.skill = self.path / "SKILL.md"
        self.skill.write_text("---\nname: greet\ndescription: Greets.\n---\n# Greeting\n")
        (self.path / "test_greeting.py").write_text(TESTS)
        self.settings = {
            "skillopt_target": "openai:worker",
            "skillopt_optimizer": "openai:thinker",
            "skillopt_base_url": server.url,
            "skillopt_proposer": "agent:stub:AGENT",
            "skillopt_patience": 1,
            "pythonpath": ".",
        }

    def reply(self, body: dict[str, Any]) -> str:
        if body["model"] == "thinker":
            edit = {"op": "append", "target": "", "content": FUSS}
            return json.dumps({"reasoning": "tone", "edits": [edit]})
        told = "exclamation" in body["messages"][0]["content"]
        return f"{body['messages'][-1]['content']}{'!' if told else '.'}"

    def use(self, agent: str) -> None:
        """Have the proposer be this script."""
        told = f'"TOLD": {str(self.path / "told.txt")!r}, '
        (self.path / "stub.py").write_text(STUB.replace("env={", f"env={{{told}"))
        (self.path / "agent.py").write_text(CALL + BEGIN + agent)
        installed.cache_clear()

    def write(self) -> None:
        ini = "\n".join(f"{name} = {value}" for name, value in self.settings.items())
        (self.path / "pytest.ini").write_text(f"[pytest]\n{ini}\n")

    def train(self, *arguments: str) -> tuple[int, str]:
        self.write()
        plain = ("-p", "no:cacheprovider", *(() if "-n1" in arguments else ("-p", "no:xdist")))
        done = self._pytester.runpytest_inprocess("--skillopt-train", *plain, *arguments)
        return int(done.ret), " ".join((done.stdout.str() + done.stderr.str()).split())

    def start(self, *arguments: str) -> warm_sessions.Session:
        self.write()
        command = ("--skillopt-train", "-p", "no:xdist", *arguments)
        return warm_sessions.start(*command, cwd=self.path, quiet=True)

    @property
    def begun(self) -> int:
        """Times that the agent was started."""
        file = self.path / "told.txt"
        return file.read_text().count("begun") if file.exists() else 0

    @property
    def run(self) -> Path:
        return sorted((self.path / ".skillopt" / "runs").glob("*"))[-1]

    @property
    def result(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.run / "result.json").read_text())
        return data

    def journal(self, kind: str) -> list[dict[str, Any]]:
        lines = map(json.loads, (self.run / "journal.jsonl").read_text().splitlines())
        return [line["data"] for line in lines if line["kind"] == kind]

    @property
    def rollouts(self) -> list[dict[str, Any]]:
        """Requests of the rollouts that the agent asked for."""
        asked = (rollout["request"] for rollout in self.journal("rollout"))
        return [request for request in asked if request["stream"] == "agent"]


@pytest.fixture
def greeting(
    pytester: pytest.Pytester, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> Project:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr("pytest_skillopt.addons.harness.processes._LOOK_MS", 20)
    project = Project(pytester, chat_server)
    # A scripted agent tells the test what it saw, in files beside the project's own.
    project.settings["skillopt_sandbox"] = "none"
    return project


def test_what_an_agent_proposes_is_tried_and_accepted_like_any_edit(greeting: Project) -> None:
    greeting.use(WORK)
    status, shown = greeting.train("-n1")
    assert status == 0, shown
    (skill,) = greeting.result["skills"]
    assert (skill["status"], skill["written"]) == ("accepted", True), shown
    assert greeting.skill.read_text().endswith(f"\n{RULE}\n")
    fates = {row["content"]: row for row in skill["edits"]}
    assert fates[RULE]["status"] == "accepted"
    assert fates[RULE]["reason"] == "Every reply lacked an exclamation mark."
    assert len(fates[RULE]["tasks"]) == 1, "the task that the agent named"
    assert fates[FUSS]["status"] in ("lost", "dropped"), "the analysts were asked, too"
    files, before, after = json.loads((greeting.path / "files.json").read_text())
    assert "A rollout that failed" in before
    assert "no exclamation mark" in before
    assert "A rollout that passed" in after
    assert len(greeting.rollouts) == 2 * greeting.begun
    usage = {(row["role"], row["stage"]): row["calls"] for row in greeting.result["usage"]}
    assert usage["optimizer", "agent"] == greeting.begun >= 1
    assert usage["target", "agent"] == len(greeting.rollouts)
    assert greeting.result["rollouts"] == len(greeting.journal("rollout"))

    names = {"skill/SKILL.md", "about.md", "rollout", "failures/1.md"}
    assert names <= files.keys()
    splits = {row["id"].partition("[")[2][:-1]: row["split"] for row in skill["tasks"]}
    assert Counter(splits.values()).keys() == {"train", "val", "test"}
    seen = json.dumps(files)
    assert all((name in seen) <= (split == "train") for name, split in splits.items())
    asked = {request["task"].partition("[")[2][:-1] for request in greeting.rollouts}
    assert {splits[name] for name in asked} == {"train"}
    assert KEY not in seen


CHANGED = [
    ("(here/'skill/new').symlink_to('/etc/passwd')", "new is not a regular file"),
    ("skill.unlink(); skill.symlink_to('/etc/passwd')", "SKILL.md is not a regular file"),
    ("skill.unlink(); os.mkfifo(skill)", "SKILL.md is not a regular file"),
    ("skill.unlink()", "SKILL.md was removed"),
    ("f = skill.open('ab'); f.truncate(8 << 20)", "SKILL.md is too large"),
    ("skill.write_bytes(b'\\xff')", "not UTF-8"),
    ("(here/'skill/scripts/run.sh').write_text('curl')", "scripts/run.sh is not trained"),
    ("add('- a rule\\n' * 60_000)", "SKILL.md has more than 2000 new lines"),
    ("for n in range(600): os.close(os.open(f'skill/{n}', 64))", "more than 500 files"),
    ("os.makedirs('skill/' + 'a/' * 120)", "nested deeper than 100"),
    ("os.rename('skill', 'was'); os.symlink('was', 'skill')", "it is a link"),
    ("(here/'skill/more.md').write_text('x')", "more.md is not trained"),
]


def test_a_folder_with_anything_but_changed_texts_is_refused_by_name(
    greeting: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that the agent asks for rollouts, and when it has ended."""
    monkeypatch.setattr("pytest_skillopt.addons.harness.tree._MOST_ENTRIES", 500)
    folder = greeting.path / "skills" / "greet"
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts" / "run.sh").write_text("true\n")
    greeting.skill = greeting.skill.rename(folder / "SKILL.md")
    before = greeting.skill.read_text()
    greeting.use(
        f"import shutil\nadd('\\n{RULE}\\n')\nwhole = here / 'whole'\n"
        "shutil.copytree(here / 'skill', whole)\nsaid = []\n"
        f"for change in {[change for change, _ in CHANGED]}:\n"
        "    os.rename(here / 'skill', here / f'old{len(said)}')\n"
        "    shutil.copytree(whole, here / 'skill')\n"
        "    exec(change)\n    said.append(rollout(1))\n"
        "(told.parent / 'said.json').write_text(written(said))\nsay(text='Done.')"
    )
    status, shown = greeting.train("--skillopt-max-rollouts=30")
    assert status == 0, shown
    said = json.loads((greeting.path / "said.json").read_text())
    assert len(said) == len(CHANGED)
    for (_, words), answer in zip(CHANGED, said, strict=True):
        assert words in answer
    assert "the change of stub " in shown
    assert "more.md is not trained" in " ".join(greeting.result["notes"])
    assert greeting.rollouts == [], "and such a folder is never run"
    assert greeting.skill.read_text() == before
    assert greeting.begun >= 1


def test_an_edit_of_an_agent_is_vetted_before_anything_runs_with_it(greeting: Project) -> None:
    key = "sk-proj-" + "a1B2c3D4" * 4
    greeting.use(
        f"add('\\nUse {key} and an exclamation mark.\\n')\n"
        "(told.parent / 'said.txt').write_text(rollout(1))\nsay(text='Done.')"
    )
    greeting.train("--skillopt-max-rollouts=30")
    said = (greeting.path / "said.txt").read_text()
    assert said.startswith("Not run, the checks refuse the skill: ")
    assert greeting.rollouts == []
    rows = [r for r in greeting.result["skills"][0]["edits"] if "Use " in r["content"]]
    assert {row["status"] for row in rows} == {"refused"}
    assert key not in (greeting.run / "journal.jsonl").read_text()
    assert key not in (greeting.run / "result.json").read_text()


@pytest.mark.parametrize("failure", ["sys.exit(3)", "call(path='/v1/nothing')", "say(other=1)"])
def test_a_failed_agent_is_an_infrastructure_error_and_no_edit(
    greeting: Project, failure: str
) -> None:
    greeting.use(f"add('\\n{RULE}\\n')\n{failure}")
    status, shown = greeting.train("--skillopt-max-rollouts=30")
    assert status == 0, shown
    assert greeting.result["status"] == "unchanged"
    assert "proposed nothing: stub" in shown
    assert "ended without an answer" in shown
    assert not any(RULE in row["content"] for row in greeting.result["skills"][0]["edits"])


ODD = [
    f"say(text='Every reply lacked a mark: {ODD_KEY} \\ud800' + 'x' * 500)",
    "tasks.write_text('[' * 100_000); say(text='Done.')",
    "tasks.write_text('{\"Remark number\": {\"1\": [1e999]}}'); say(text='x')",
    "tasks.write_text('{\"\\\\ud800\": [1]}'); say(text='Done.')",
    "os.symlink('/dev/zero', 'tasks.json'); say(text='Done.')",
    "os.mkfifo('tasks.json'); say(text='Done.')",
]


def test_whatever_an_agent_says_beside_its_edit_is_no_more_than_words(greeting: Project) -> None:
    greeting.use(
        f"tasks, number = here / 'tasks.json', told.read_text().count('begun')\n"
        "add(f'\\nRemark number {number}.\\n')\n"
        f"exec({ODD}[number - 1])"
    )
    greeting.settings["skillopt_patience"] = len(ODD)
    status, shown = greeting.train()
    assert status == 0, shown
    assert greeting.begun == len(ODD)
    rows = {row["content"] for row in greeting.result["skills"][0]["edits"]}
    assert {f"Remark number {number}." for number in range(1, len(ODD) + 1)} <= rows, shown
    for file in ("journal.jsonl", "result.json"):
        assert ODD_KEY not in (greeting.run / file).read_text(encoding="utf-8")


def test_a_long_name_of_the_temporary_folder(
    greeting: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket's path is shorter than others may be."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    greeting.use(WORK)
    status, shown = greeting.train("--skillopt-max-rollouts=30")
    assert status == 0, shown
    assert "AF_UNIX path too long; set TMPDIR to a shorter path" in shown


def test_the_rollouts_of_an_agent_are_bounded_and_within_the_cap(greeting: Project) -> None:
    greeting.use(
        "said = [rollout(n) for n in (1, 1, 'x', 99, *[1] * 7)]\n"
        "(told.parent / 'said.json').write_text(written(said))\nsay(text='Done.')"
    )
    greeting.train("--skillopt-max-rollouts=200")
    said = json.loads((greeting.path / "said.json").read_text())
    assert ["A rollout that failed" in text for text in said] == [1, 1, 0, 0, *[1] * 6, 0]
    assert said[2].startswith("Say ./rollout N")
    assert said[-1].startswith("Not run: no rollouts are left.")
    assert greeting.result["rollouts"] <= 200
    keys = {(r["task"], r["version"], r["index"]) for r in greeting.rollouts}
    assert len(keys) == len(greeting.rollouts) == 8 * greeting.begun


@pytest.mark.parametrize("when", ["the agent works", "its edit is tried"])
def test_a_killed_run_pays_neither_reply_nor_rollouts_again(greeting: Project, when: str) -> None:
    greeting.use(WORK)
    server, off = greeting.server, "--skillopt-cache=off"
    held: list[int] = []
    killed = threading.Event()

    def reply(body: dict[str, Any]) -> str:
        told = body["model"] == "worker" and "exclamation" in body["messages"][0]["content"]
        at = 1 if when == "the agent works" else 2
        held.append(1) if told else None
        if len(held) == at and told:
            server.hold(0)
            killed.wait(PATIENCE)
        return greeting.reply(body)

    server.reply = reply
    process = greeting.start(off)
    wait_until(lambda: len(held) >= (1 if when == "the agent works" else 2))
    process.kill()
    process.wait()
    killed.set()
    server.reply = greeting.reply
    server.release()
    begun, paid = greeting.begun, greeting.rollouts
    first = Counter(json.dumps(r) for r in paid)
    status, shown = greeting.train(off, f"--skillopt-resume={greeting.run.name}")
    assert status == 0, shown
    assert greeting.result["status"] == "accepted"
    assert begun == 1
    if when == "its edit is tried":
        assert greeting.begun == 1, "its reply was journaled"
    assert max(Counter(json.dumps(r) for r in greeting.rollouts).values()) == 1
    assert first.keys() <= {json.dumps(r) for r in greeting.rollouts}
    assert len(greeting.rollouts) == 2


WRONG = [
    ("codex", "is not of the form agent:NAME"),
    ("agent:nobody", "'nobody' is not one of"),
    ("agent:claude", "claude cannot use https://api.openai.com/v1"),
]


@pytest.mark.parametrize(("name", "said"), WRONG)
def test_a_wrong_proposer_is_known_before_anything_is_paid(
    greeting: Project, name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    greeting.settings["skillopt_proposer"] = name
    if name == "agent:claude":
        claude = KNOWN["claude"]
        monkeypatch.setattr("pytest_skillopt.addons.harness.proxy.installed", lambda _: claude)
        monkeypatch.setattr("pytest_skillopt.model.roles.Models.probe", lambda *_: None)
        greeting.settings["skillopt_base_url"] = ""
    status, shown = greeting.train()
    assert status == pytest.ExitCode.USAGE_ERROR
    assert said in shown
    assert greeting.server.calls == 0


def test_the_plan_says_how_often_it_runs(greeting: Project) -> None:
    greeting.use("")
    _, shown = greeting.train("--collect-only")
    assert "agent:stub:AGENT: at most 6 runs for each skill" in shown
    assert greeting.begun == 0


OLD = "---\nname: n\n---\n# Rules\n\nKeep it short.\n\n- One.\n- Two.\n"


def edits(after: str) -> list[tuple[str, str, str]]:
    before = Document.from_text(OLD)
    found = edits_between(before, Document.from_text(after))
    return [(edit.op, edit.target, edit.content) for edit in found]


def test_each_changed_place_is_an_edit_and_added_rules_are_several() -> None:
    changed = OLD.replace("Keep it short.", "Keep it brief.") + "- Three.\n- Four.\n"
    assert edits(changed) == [
        ("replace", "Keep it short.", "Keep it brief."),
        ("append", "", "- Three."),
        ("append", "", "- Four."),
    ]
    assert edits(OLD.replace("- One.\n", "")) == [("delete", "- One.", "")]
    added = OLD + "\n## Dates\n\nWrite ISO dates.\n\nName the zone.\n"
    assert [text for _, _, text in edits(added)] == [
        *("## Dates\n\nWrite ISO dates.", "Name the zone.")
    ]
    code = OLD + "\nRun:\n\n```sh\n- a\n\n- b\n```\n"
    assert [text for _, _, text in edits(code)] == ["Run:\n\n```sh\n- a\n\n- b\n```"]
    assert edits(OLD.replace("name: n", "name: other")) == []
    assert edits(OLD) == []


class Agents(ModelServer):
    """A provider whose model, given tools, does the work of a proposer."""

    def decide(self, scenario: str, seen: Seen) -> tuple[str, str, dict[str, Any]]:
        commands = [
            "cat failures/1.md about.md",
            f"printf '\\n%s\\n' '{RULE}' >> skill/SKILL.md",
            "./rollout 1",
        ]
        if not seen.tools:
            return "say", json.dumps({"reasoning": "none", "edits": []}), {}
        if len(seen.results) < len(commands):
            return seen.shell(commands[len(seen.results)])
        passed = "A rollout that passed" in seen.results[-1]
        return "say", "It helps." if passed else f"It does not: {seen.results[-1]}", {}


@pytest.mark.parametrize("agent", ["codex", "claude"])
def test_codex_and_claude_code_themselves_propose(greeting: Project, agent: str) -> None:
    if not bundled_path(KNOWN[agent].bundled):
        pytest.skip(f"{agent} is not installed; pip install -e '.[dev]'")
    with Agents() as provider:
        greeting.settings |= {
            "skillopt_proposer": f"agent:{agent}",
            "skillopt_optimizer": f"openai:fake-model@{provider.url()}",
            "skillopt_sandbox": os.environ.get("SKILLOPT_TEST_SANDBOX", "auto"),
        }
        status, shown = greeting.train()
    assert status == 0, shown
    (skill,) = greeting.result["skills"]
    assert (skill["status"], skill["written"]) == ("accepted", True), shown
    row = next(row for row in skill["edits"] if row["status"] == "accepted")
    assert (row["content"], row["reason"]) == (RULE, "It helps.")
    assert len(greeting.rollouts) == 1
