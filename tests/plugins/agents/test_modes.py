"""A coding agent in every mode, over workers, and in the report. The agent is a stub."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from greetings import proposal
from run_files import all_results, latest_entries
from tables import each_row

if TYPE_CHECKING:
    from pathlib import Path

    from harness_project import Project

AGENT = """
skill = open(".agents/skills/house-greeting/SKILL.md").read()
call(skill if "READ" in os.environ["PROMPT"] else "Nothing.")
word = "Ahoy" if "Ahoy" in skill else "Hello"
open("greeting.txt", "w").write(word)
say(text="Done.")
"""
TASKS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("guest", "Ada Ben Cleo".split())
def test_greeting(skill_harness, skill_workspace, guest):
    skill_harness(f"{READ} Greet {guest}.")
    assert (skill_workspace / "greeting.txt").read_text() == "Ahoy"
"""
VERSION = ".".join(map(str, sys.version_info[:3]))


@pytest.fixture
def greeter(project: Project) -> Project:
    """Three tasks that pass if the skill says Ahoy."""
    project.use_stub(AGENT)
    (project.path / "test_greeting.py").write_text(TASKS.replace("{READ}", "READ"))
    project.settings |= {
        "skillopt_sandbox": "none",
        "skillopt_optimizer": "openai:thinker",
    }
    return project


def test_an_agent_that_does_nothing_shows_which_tasks_pass_anyhow(greeter: Project) -> None:
    lax = """

@pytest.mark.skill_task
def test_lax(skill_harness):
    assert not skill_harness("READ Greet nobody.").files


@pytest.mark.skill_task(trigger=False)
def test_near_miss(skill_harness):
    assert not skill_harness.trigger("What is the time?")
"""
    tests = greeter.path / "test_greeting.py"
    tests.write_text(tests.read_text() + lax)
    greeter.pytest("--skillopt-train", "--skillopt-max-rollouts=30")
    (data,) = latest_entries(greeter.path, "idle")
    assert [task for task, source in data["passed"]] == ["test_greeting.py::test_lax"]


def results(project: Project) -> list[dict[str, Any]]:
    return all_results(project.path)


OTHER = """
from dataclasses import replace

OTHER = replace(AGENT, name="other")
"""


def test_each_agent_of_a_test_has_tasks_of_its_own(greeter: Project) -> None:
    with (greeter.path / "stub.py").open("a") as file:
        file.write(OTHER)
    several = (
        '@pytest.mark.parametrize("skill_harness", ["stub:AGENT", "stub:OTHER"], indirect=True)'
    )
    test = greeter.path / "test_greeting.py"
    test.write_text(test.read_text().replace("def test_greeting", f"{several}\ndef test_greeting"))
    greeter.pytest("--skillopt", "--skillopt-rollouts=1", "-p", "no:xdist")
    (found,) = results(greeter)
    assert found["versions"] | {"stub": VERSION, "other": VERSION} == found["versions"]
    assert len(found["skills"][0]["tasks"]) == 6
    assert greeter.provider.calls == 6


def test_check_compare_and_aa(greeter: Project) -> None:
    for command in (["init", "-q"], ["add", "skills"], ["commit", "-q", "-m", "begin"]):
        subprocess.run(["git", *command], check=True)
    greeter.skill.write_text(greeter.skill.read_text().replace("Ahoy", "Hello"))
    greeter.settings |= {"skillopt_rollouts": 2, "skillopt_final_rollouts": 2}
    done = greeter.pytest("--skillopt-check=HEAD", "-p", "no:xdist")
    assert done.ret == 1
    one = ("-k", "Ada", "-p", "no:xdist", "--skillopt-max-rollouts=4")
    assert greeter.pytest("--skillopt-compare", "none", str(greeter.skill), *one).ret == 0
    assert greeter.pytest("--skillopt-aa", *one).ret == 0
    check, compare, aa = results(greeter)
    assert check["skills"][0]["verdict"]["decision"] == "rejected"
    assert compare["mode"] == "compare"
    assert aa["mode"] == "aa"
    assert all(row["before"]["read"] for row in aa["skills"][0]["tasks"])


def test_workers_of_tx_and_the_words_of_the_report(greeter: Project) -> None:
    """An agent that never reads the skill passes all the same: nobody should trust that."""
    (greeter.path / "test_greeting.py").write_text(TASKS.replace("{READ}", ""))
    greeter.settings["skillopt_rollouts"] = 1
    assert greeter.pytest("--skillopt", "-d", "--tx", "2*popen").ret == 0
    (result,) = results(greeter)
    assert result["versions"]["stub"] == VERSION
    assert [row["before"]["passed"] for row in result["skills"][0]["tasks"]] == [1] * 3
    notes = "\n".join(result["notes"])
    assert "was read in no rollout: the agent never requested it" in notes
    assert "coding agents run without a sandbox" in notes
    (summary,) = (greeter.path / ".skillopt" / "runs").glob("*/summary.md")
    assert "was read in no rollout" in summary.read_text()
    (report,) = (greeter.path / ".skillopt" / "runs").glob("*/report.html")
    assert f"<dt>stub</dt><dd><code><bdi>{VERSION}</bdi></code></dd>" in report.read_text()


def test_a_report_says_what_a_document_costs_each_session(greeter: Project) -> None:
    """It is read in every session; the agent asks twice for one that says Ahoy."""
    agent = AGENT.replace(".agents/skills/house-greeting/SKILL.md", "AGENTS.md")
    greeter.use_stub(f"{agent}\nif 'Ahoy' in skill: call(skill)\n", memory=["AGENTS.md"])
    document = greeter.path / "AGENTS.md"
    document.write_text(
        "# House rules\n\nWrite the greeting to greeting.txt as it is usual here.\n"
    )
    greeter.provider.thought = proposal("Begin every greeting with Ahoy.")
    greeter.settings |= {
        "skillopt_skill": "AGENTS.md",
        "skillopt_rollouts": 1,
        "skillopt_prices": "fake-model=10/0",
        "skillopt_max_rollouts": 36,
    }
    greeter.pytest("--skillopt-train", "-p", "no:xdist")
    assert "Ahoy" in document.read_text()
    (result,) = results(greeter)
    summary = greeter.path / ".skillopt" / "runs" / result["run"] / "summary.md"
    shown = summary.read_text().replace("\u200b", "")
    assert "1,025 tokens (\\$0.01) and" in shown
    assert "2,050 tokens (\\$0.02) and" in shown
    assert "(tokens +100 %)" in shown
    assert not [note for note in result["notes"] if "read in no rollout" in note]


def test_what_a_program_unpacks_is_shared(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copilot would write 235 MB for every run."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    unpacked = tmp_path / "cache" / "stub" / "pkg"
    unpacked.mkdir(parents=True)
    (unpacked / "program").write_text("x")
    project.use_stub(
        "place = os.environ['XDG_CACHE_HOME'] + '/stub/pkg'\ncall()\n"
        "try:\n open(place + '/more', 'w')\nexcept OSError as e:\n"
        "  say(text=open(place + '/program').read() + e.strerror)\n",
        unpacks="stub/pkg",
    )
    project.settings["skillopt_sandbox"] = "bwrap"
    assert project.run("keep(text=skill_harness('Hello.'))").ret == 0
    assert project.kept == {"text": "xRead-only file system"}


@each_row("sandbox", ["none", "env"])
def test_the_plan_names_what_confines_the_agents(greeter: Project, sandbox: str) -> None:
    greeter.settings["skillopt_sandbox"] = sandbox
    greeter.write()
    said = greeter.pytest("--skillopt", "--collect-only", "-p", "no:cacheprovider").stdout.str()
    confined = {
        "none": "run without a sandbox, with all your permissions",
        "env": "are confined by env (skillopt_sandbox)",
    }
    assert f"coding agents {confined[sandbox]}" in said
    assert greeter.provider.requests == [], "nothing was paid for"


OWN = """
import pytest

@pytest.fixture(scope="session")
def skill():
    return "driving"

@pytest.fixture
def rollout():
    return 7
"""


@pytest.mark.parametrize("mode", [(), ("--skillopt", "--skillopt-rollouts=2", "-n1")])
def test_fixtures_of_a_project_may_have_the_plugins_names(
    greeter: Project, mode: tuple[str, ...]
) -> None:
    greeter.conftest += OWN
    (greeter.path / "test_greeting.py").write_text(
        """
import pytest

@pytest.mark.skill_task
def test_agent(skill_harness, skill_agent, skill, rollout):
    assert (skill, rollout) == ("driving", 7)
    done = skill_harness("READ Greet Ada.")
    assert (done.workspace / "greeting.txt").read_text() == "Ahoy"
    assert skill_agent("Greet Ada.")
"""
    )
    done = greeter.pytest(*(mode or ("-p", "no:xdist")))
    assert done.ret == 0, done.stdout.str()
    assert any("RULE: the first word" in json.dumps(body) for body in greeter.provider.bodies)
    if mode:
        (task,) = results(greeter)[0]["skills"][0]["tasks"]
        assert (task["before"]["passed"], task["before"]["n"]) == (2, 2)


def test_drift_asks_an_updated_command_line_anew(greeter: Project) -> None:
    """Its version belongs to what was measured, as a model's name does."""
    stub = greeter.path / "stub.py"
    greeter.settings["skillopt_rollouts"] = 1
    command = ("--skillopt-drift", "-p", "no:xdist", "-k", "Ada")
    greeter.pytest(*command, "--skillopt-max-calls=4")
    asked = greeter.provider.calls
    greeter.pytest(*command)
    again = greeter.provider.calls
    whole = 2 * 5
    assert 0 < asked < again == whole, "the same command line goes on"
    text = stub.read_text()
    newer = greeter.path / "newer"
    newer.write_text(f"#!/bin/sh\ntest $1 = --version && echo 99.1.2 || exec {sys.executable} $*\n")
    newer.chmod(0o755)
    stub.write_text(text.replace("executable=sys.executable", f"executable={str(newer)!r}"))
    greeter.pytest(*command, "--skillopt-max-calls=4")
    greeter.pytest(*command)
    assert greeter.provider.calls == again + whole, "nothing of the older version counts"
