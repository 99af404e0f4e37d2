"""Whole trainings with an agent, from a skill in its folder to a decision, on loopback."""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.plugins.agents.known import KNOWN, bundled_path

if TYPE_CHECKING:
    from harness_project import Project

pytestmark = pytest.mark.skipif(
    not bundled_path(KNOWN["codex"].bundled),
    reason="Codex is not installed; pip install -e '.[dev]'",
)
START = """\
---
name: house-greeting
description: How this house writes a greeting file. Use whenever asked to greet a guest.
---
# House greeting

Write the greeting to greeting.txt as the house does, in one line, for whoever is named.
"""
TASKS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("guest", ["Ada", "Ben"])
def test_greeting(skill_harness, skill_workspace, guest):
    reply = skill_harness(f"Greet {guest} for the front desk.")
    assert reply.files == {"greeting.txt": "added"}
    assert (skill_workspace / "greeting.txt").read_text() == f"Ahoy {guest}\\n"
"""


def test_codex_is_measured_and_the_same_command_is_free(project: Project) -> None:
    (project.path / "test_greeting.py").write_text(TASKS)
    project.settings |= {"skillopt_harness": "codex", "skillopt_lanes": 2}
    command = ("--skillopt", "--skillopt-rollouts=1", "-n1")
    assert project.pytest(*command).ret == 0
    result = project.result
    assert result["versions"]["codex"][0].isdigit()
    (target,) = [row for row in result["usage"] if row["role"] == "target"]
    assert target["calls"] == project.provider.calls
    assert all(row["before"]["read"] == 1 for row in result["skills"][0]["tasks"])
    (project.path / ".skillopt" / "runs").rename(project.path / "first")
    assert project.pytest(*command).ret == 0
    assert not any(row["calls"] for row in project.result["usage"])


TRIGGERED = """
skill = open(".agents/skills/house-greeting/SKILL.md").read()
fits = "to be welcomed" in skill and "Greet" in os.environ["PROMPT"]
call(skill if fits else "Nothing fits.")
say(text="Done.")
"""


def test_a_description_is_trained_on_what_an_agent_asks_for(project: Project) -> None:
    """The agent asks for the skill where its description fits the request."""
    page = (Path(__file__).parents[3] / "docs" / "more-to-train.md").read_text(encoding="utf-8")
    tests, _ = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    project.use_stub(TRIGGERED)
    project.skill.write_text(START.replace("How this house writes a greeting file", "Lists"))
    (project.path / "test_trigger.py").write_text(tests)
    new = "Welcomes visitors. Use when a visitor is to be welcomed."
    edit = {"op": "replace", "target": "", "content": new, "field": "description"}
    project.provider.thought = json.dumps({"reasoning": "nobody asks", "edits": [edit]})
    project.settings |= {
        "skillopt_optimizer": "openai:thinker",
        "skillopt_sandbox": "none",
        "skillopt_final_rollouts": 1,
    }
    few = "Ada or Ben or Gus"
    quick = ("--skillopt-train=description", "--skillopt-rollouts=1", "-p", "no:xdist")
    project.pytest(*quick, "-k", few)
    assert project.result["status"] == "accepted", project.result["reason"]
    assert f"\ndescription: {new}\n---\n" in project.skill.read_text()


def test_the_way_that_the_page_shows(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its settings and tests as they stand there, with a model that leaves out what is not news."""
    page = (Path(__file__).parents[3] / "docs" / "harnesses.md").read_text(encoding="utf-8")
    found = re.findall(r"^( *)```(\w+)\n(.*?)^ *```", page, re.DOTALL | re.MULTILINE)
    toml, *tests = [textwrap.dedent(code) for _, kind, code in found if kind in ("toml", "python")]
    for number, code in enumerate(tests):
        (project.path / f"test_{number}.py").write_text(code)
    settings = tomllib.loads(toml)["tool"]["pytest"]["ini_options"]
    skill = project.path / settings["skillopt_skill"]
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: release-notes\ndescription: Release notes.\n---\n# Notes\n")

    def decide(scenario: str, seen: Any) -> Any:
        if not seen.calls:
            return seen.open("release-notes")
        if len(seen.calls) == 1:
            return seen.shell("grep -vE 'chore|ci:|test' CHANGES > NOTES.md")
        return "say", "Done.", {}

    monkeypatch.setattr(project.provider, "decide", decide)
    project.settings = {**settings, "skillopt_base_url": project.provider.url()}
    project.pytest("-p", "no:xdist").assert_outcomes(passed=4)
    assert {body["model"] for body in project.provider.bodies} == {"gpt-5-mini"}
