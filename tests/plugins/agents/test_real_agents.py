"""Codex and Claude Code themselves, as their wheels bring them, with a provider on loopback.

``.ci/harnesses`` installs the others and runs their tests here, too.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.plugins.agents.known import KNOWN, MEMORY, bundled_path, memory_name
from pytest_skillopt.plugins.agents.sandbox import find_bwrap

if TYPE_CHECKING:
    from harness_project import Project
    from model_server import Act, Seen

OTHERS = os.environ.get("SKILLOPT_TEST_AGENTS", "").split()
BOTH = pytest.mark.parametrize("agent", ["codex", "claude"])
ALL = pytest.mark.parametrize("agent", ["codex", "claude", *OTHERS])
ACP = ("opencode", "qwen")
KEYS = {"claude": "x-api-key", "gemini": "x-goog-api-key"}
"""The header in which a provider wants its key."""
MISSING = [name for name in ("codex", "claude") if not bundled_path(KNOWN[name].bundled)]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"not installed: {', '.join(MISSING)}; pip install -e '.[dev]'"
)
GREET = """
reply = skill_harness("Greet Ada for the front desk.")
keep(text=reply, files=reply.files, diff=reply.diff, used=reply.skill_used, read=reply.skill_read,
     calls=reply.usage.calls, tokens=[reply.usage.input_tokens, reply.usage.output_tokens],
     written=(workspace / "greeting.txt").read_text(), left=os.listdir(workspace),
     ran=reply.ran(r"Ahoy Ada' > greeting"), checked=reply.check("cat greeting.txt"),
     status=reply.exit_status, version=skill_harness.harness.version)
"""


@ALL
def test_the_skill_is_found_read_and_followed(project: Project, agent: str) -> None:
    sandbox = os.environ.get("SKILLOPT_TEST_SANDBOX", "auto")
    project.settings |= {"skillopt_harness": agent, "skillopt_sandbox": sandbox}
    assert project.run(GREET).ret == 0
    kept = project.kept
    assert kept["text"] == "Done: greeted Ada."
    assert kept["files"] == {"greeting.txt": "added"}
    assert "+Ahoy Ada" in kept["diff"]
    assert kept["written"] == kept["checked"] + "\n" == "Ahoy Ada\n"
    assert kept["used"]
    assert kept["read"]
    assert kept["ran"]
    assert kept["calls"] == project.provider.calls >= 3
    assert kept["tokens"] == [1000 * kept["calls"], 25 * kept["calls"]]
    assert kept["left"] == ["greeting.txt"]
    assert kept["status"] == 0
    assert kept["version"][0].isdigit()
    # The key is the proxy's to know, and the model is the one under test.
    header = KEYS.get(agent, "authorization")
    sent = [headers[header] for path, headers in project.provider.requests]
    assert all("sk-test-0123456789abcdefghij" in value for value in sent)
    assert {body.get("model", "fake-model") for body in project.provider.bodies} == {"fake-model"}


FILES = ("AGENTS.md", "service/CLAUDE.md", ".github/copilot-instructions.md")
RENAMED = [("codex", "service/CLAUDE.md"), ("claude", "service/AGENTS.md")]


@pytest.mark.parametrize(
    ("agent", "file"),
    [*RENAMED, *((agent, file) for agent in OTHERS for file in FILES)],
)
def test_a_document_is_read_in_every_rollout(project: Project, agent: str, file: str) -> None:
    """Under the name that the agent reads, in its folder; other documents there are removed."""
    folder = file.removesuffix(memory_name(KNOWN[agent], file))
    for top, word in (("", "Ahoy"), ("fixture", "Old")):
        for name in MEMORY:
            path = project.path / top / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"# House rules\n\nRULE: the first word of every greeting is {word}\n")
    project.settings |= {"skillopt_harness": agent, "skillopt_skill": file}
    body = f"""
reply = skill_harness("Greet Ada.", copy="fixture")
if skill.text:
    keep(files=reply.files, read=reply.skill_read, used=reply.skill_used)
assert (workspace / {folder!r} / "greeting.txt").read_text() == "Ahoy Ada\\n"
"""
    alone = agent == "claude"  # which takes a second to start: without it is left to the others
    arms = ("--skillopt",) if alone else ("--skillopt-compare", "none", file)
    few = ("--skillopt-rollouts=1", "--skillopt-max-rollouts=4", "-p", "no:xdist")
    assert project.run(body, *arms, *few).ret == 0
    (skill,) = project.result["skills"]
    (row,) = skill["tasks"]
    if not alone:
        assert (row["before"]["passed"], row["before"]["read"]) == (0, None)
        assert "Hello Ada" in row["before"]["sample"]["message"]
    found = row["before" if alone else "after"]
    assert found["passed"] == found["read"] == found["n"] > 0
    greeting = os.path.join(folder, "greeting.txt")
    assert project.kept["files"] == {greeting: "added"}
    assert project.kept["read"]
    assert project.kept["used"]
    assert not [note for note in project.result["notes"] if "was read in no rollout" in note]


@pytest.mark.parametrize(
    ("agent", "status"),
    [("claude", 401), ("codex", 500), *itertools.product(OTHERS, (401, 500))],
)
def test_a_refusal_is_no_answer(project: Project, agent: str, status: int) -> None:
    """Claude calls a failed login a success, and both try again for minutes if they may."""
    project.settings |= {
        "skillopt_harness": agent,
        "skillopt_base_url": project.provider.url(f"status-{status}"),
        "skillopt_max_attempts": 1,
        "skillopt_rollouts": 1,
    }
    assert project.run(GREET, "--skillopt", "-p", "no:xdist").ret == 1
    first = project.errors[0]
    assert first["kind"] == "provider"
    words = f"openai:fake-model: HTTP {status}: scripted {status}"
    more = "is the key right?" if status == 401 else "after 7 tries"
    assert first["message"] == f"{words} ({more})"
    assert first["fatal"] is (status == 401)
    (row,) = project.result["skills"][0]["tasks"]
    assert row["before"]["n"] == 0
    assert project.provider.calls == (1 if status == 401 else 7)


def test_a_busy_provider_is_asked_again_when_it_says(project: Project) -> None:
    project.settings |= {
        "skillopt_harness": "codex",
        "skillopt_base_url": project.provider.url("once-429"),
    }
    assert project.run(GREET).ret == 0
    assert project.kept["written"] == "Ahoy Ada\n"
    assert project.kept["calls"] == 3
    assert project.provider.calls == 4


@ALL
def test_whether_the_skill_triggers(
    project: Project, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A yes costs one call: the run is ended as soon as the body is asked for."""
    project.settings["skillopt_harness"] = agent
    decide = project.provider.decide
    asked: list[str] = []

    def choose(scenario: str, seen: Seen) -> Act:
        asked.append(seen.prompt)
        return decide("noskill" if "Greet Nobody" in seen.prompt else scenario, seen)

    monkeypatch.setattr(project.provider, "decide", choose)
    project.run("keep(said=[skill_harness.trigger(f'Greet {n}.') for n in ('Ada', 'Nobody')])")
    assert project.kept == {"said": [True, False]}
    assert sum("Greet Ada" in prompt for prompt in asked) == 1


def test_trigger_queries_of_a_file(project: Project) -> None:
    """Half of these are wrong about what the agent does: it asks for the skill to greet."""
    project.settings |= {"skillopt_harness": "codex", "skillopt_evals": "yes"}
    rows = [
        {"query": "Greet Ada.", "should_trigger": True},
        {"query": "Greet Ben.", "should_trigger": False},
    ]
    folder = project.skill.parent / "evals"
    folder.mkdir()
    (folder / "eval_queries.json").write_text(json.dumps(rows))
    done = project.pytest()
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*the agent loaded the skill and should not: Greet Ben.*"])
    assert project.provider.calls == 2


TALK = """
talk = skill_user(skill_harness, "This is turn 1.", plan="Count your messages.", most=4)
keep(text=talk.text, ended=talk.ended, messages=[m["content"] for m in talk.messages],
     ran=[r.ran("turn") for r in talk.replies], files=sorted(os.listdir(workspace)),
     calls=sum(r.usage.calls for r in talk.replies), read=[r.skill_read for r in talk.replies],
     turns=[turn.role for turn in rollout.transcript])
"""


@pytest.mark.parametrize("agent", ["codex", "claude", *(n for n in OTHERS if n in ACP)])
def test_a_conversation_of_four_turns_is_one_session(
    project: Project, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model says which turns it was sent, and the user, a model, counts on."""
    project.settings |= {"skillopt_harness": agent, "skillopt_user": "openai:fake-user"}

    def choose(scenario: str, seen: Seen) -> Act:
        turns = list(dict.fromkeys(re.findall(r"This is turn (\d)", seen.prompt)))
        if not seen.tools:
            count = len(re.findall(r'"role": "user"', seen.prompt))
            text = f"This is turn {count + 1}."
            return "say", json.dumps({"asked_for": [], "next": "say", "text": text}), {}
        if len(seen.calls) < len(turns):
            return seen.shell(f"echo {turns[-1]} > turn-{turns[-1]}.txt")
        return "say", f"I was sent {' '.join(turns)}.", {}

    monkeypatch.setattr(project.provider, "decide", choose)
    once = ("--skillopt", "--skillopt-rollouts=1", "-p", "no:xdist")
    assert project.run(TALK, *once, fixtures=", skill_user").ret == 0
    kept = project.kept
    assert kept["messages"][1::2] == [
        "I was sent 1.",
        "I was sent 1 2.",
        "I was sent 1 2 3.",
        "I was sent 1 2 3 4.",
    ]
    assert kept["messages"][::2] == [f"This is turn {n}." for n in (1, 2, 3, 4)]
    assert kept["ended"] == "most"
    assert kept["ran"] == [True] * 4
    assert kept["files"] == [f"turn-{n}.txt" for n in (1, 2, 3, 4)]
    assert kept["turns"] == [*("user", "assistant", "tool", "assistant") * 4, "end"]


@BOTH
def test_the_skill_is_forced(project: Project, agent: str) -> None:
    """Without a turn in which the model could decide."""
    project.settings["skillopt_harness"] = agent
    body = "reply = skill_harness('Greet Ada.', explicit=True)\n"
    assert project.run(body + "keep(read=reply.skill_read, calls=reply.usage.calls)").ret == 0
    assert project.kept == {"read": True, "calls": 2}


def test_a_run_without_end_is_a_wrong_answer(project: Project) -> None:
    project.settings |= {
        "skillopt_harness": "codex",
        "skillopt_base_url": project.provider.url("loop"),
    }
    once = ("--skillopt", "--skillopt-rollouts=1", "-p", "no:xdist")
    project.run("skill_harness('Greet Ada.', max_turns=3)", *once)
    (row,) = project.result["skills"][0]["tasks"]
    assert (row["before"]["passed"], row["before"]["n"]) == (0, 1)
    assert (
        "no final answer after 3 model calls; last commands" in (row["before"]["sample"]["message"])
    )
    assert project.provider.calls == 3


def test_an_agent_cannot_get_at_the_key(project: Project) -> None:
    """Not from its environment, from other processes, from files, or from the proxy."""
    assert find_bwrap()
    (project.path / "secret.txt").write_text("KEY-IN-THE-PROJECT")
    project.settings |= {
        "skillopt_harness": "codex",
        "skillopt_base_url": project.provider.url("shell"),
    }
    commands = [
        "env",
        "cat /proc/*/environ | tr '\\0' '\\n'",
        f"cat {project.path}/secret.txt {project.path}/test_task.py; ls -a ~root /root",
        "grep base_url ~/.codex/config.toml; curl -si $(sed -n 's/base_url = //p' "
        "~/.codex/config.toml | tr -d '\"')/models",
        "echo changed >> .agents/skills/house-greeting/SKILL.md",
        "touch /etc/skillopt-was-here /usr/skillopt-was-here; id",
    ]
    lines = "\n".join(f"RUN: {command}" for command in commands)
    body = f"reply = skill_harness({lines!r})\nkeep(text=reply, n=len(reply.commands))"
    assert project.run(body).ret == 0
    said = project.kept["text"]
    assert project.kept["n"] == len(commands)
    assert "fake-model" in said
    assert "HOME=" in said
    assert "Read-only file system" in said
    assert "sk-test-" not in said
    assert "KEY-IN-THE-PROJECT" not in said
    assert "def keep" not in said


def test_every_other_copy_of_the_skill_is_removed(project: Project) -> None:
    """A copied repository holds the skill as it is on disk, under whatever folder."""
    old = project.skill.read_text().replace("Ahoy", "Old")
    for folder in (".claude/skills/house-greeting", ".codex/skills/greet", "kit/greeting"):
        place = project.path / "fixture" / folder
        place.mkdir(parents=True)
        (place / "SKILL.md").write_text(old)
    (project.path / "fixture" / "README").write_text("Hello.\n")
    project.settings |= {
        "skillopt_harness": "codex",
        "skillopt_skill": "skills/house-greeting/SKILL.md",
    }
    body = "reply = skill_harness('Greet Ada.', copy='fixture')\nkeep(files=reply.files, "
    body += "written=(workspace / 'greeting.txt').read_text())"
    assert project.run(body).ret == 0
    assert project.kept == {"files": {"greeting.txt": "added"}, "written": "Ahoy Ada\n"}
