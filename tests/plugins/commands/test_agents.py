"""Commands that a coding agent calls, answered by the test."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from harness_project import Project
from model_server import ModelServer
from run_files import latest_entries

from pytest_skillopt.plugins.agents.known import KNOWN, bundled_path
from pytest_skillopt.plugins.agents.sandbox import find_bwrap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = "sk-test-0123456789abcdefghij"
SHELL = """
import subprocess

def shell(line):
    how = {"shell": True, "capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    done = subprocess.run(line, **how)
    said = done.stdout + done.stderr
    say(ran=line, result=said)
    return said

call()
say(text="".join(shell(line) for line in os.environ["PROMPT"].splitlines()))
"""
"""Agent that runs the lines of its prompt and tells what they print."""
STUBS = "from pytest_skillopt.plugins.commands import Exit, PASS, SPY"
# Codex brings a bubblewrap, but many containers and kernels forbid the namespaces that it needs.
NEEDS_BWRAP = pytest.mark.skipif(not find_bwrap(), reason="bubblewrap may make no namespace here")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with ModelServer() as server:
        yield Project(pytester, server)


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A real program on the path."""
    folder = tmp_path / "real"
    folder.mkdir()
    (folder / "tool").write_text("#!/bin/sh\necho real $*\n")
    (folder / "tool").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder / "tool"


@pytest.mark.parametrize("sandbox", ["none", pytest.param("bwrap", marks=NEEDS_BWRAP)])
def test_an_agent_finds_the_stub_by_its_name(project: Project, tool: Path, sandbox: str) -> None:
    """Also in a login shell, whose profile may set another path."""
    project.settings["skillopt_sandbox"] = sandbox
    project.use_stub(SHELL)
    body = f"""
tool = skill_commands("tool", {{"a": "stub a\\n", "in": lambda argv, stdin, cwd: f"{{cwd}}\\n"}})
seen = skill_commands("echo-real", {{"": PASS}})
reply = skill_harness("tool a\\nbash -lc 'PATH=/bin; . ~/.profile; tool a'\\ntool in\\n{tool} b\\n"
                      "printf 'tool a' > release.sh")
keep(text=reply.text.splitlines(), check=reply.check("sh release.sh"), where=str(workspace),
     calls=[[str(call), call.code, call.refused] for call in tool.calls])
"""
    assert project.run(body, head=STUBS, fixtures=", skill_commands").ret == 0
    kept = project.kept
    hidden = sandbox == "bwrap"
    by_path = f"{tool}: refused, call it by its name" if hidden else "real b"
    assert kept["text"] == ["stub a", "stub a", kept["where"], by_path]
    assert kept["check"] == "stub a"
    by_name = [["tool a", 0, False], ["tool a", 0, False], ["tool in", 0, False]]
    assert kept["calls"] == [*by_name, ["tool a", 0, False]]


@NEEDS_BWRAP
def test_a_call_by_path_is_recorded_and_a_watched_program_runs(
    project: Project, tool: Path
) -> None:
    project.settings["skillopt_sandbox"] = "bwrap"
    project.use_stub(SHELL)
    body = f"""
skill_commands("tool", {{}})
refused = skill_harness("{tool} b").text
calls = [[call.name, call.args[0], call.code] for call in skill_commands.calls]
skill_commands("tool", {{"": SPY}})
watched = skill_harness("tool c").text
keep(refused=refused, calls=calls, watched=watched, out=skill_commands.calls[-1].out)
"""
    assert project.run(body, head=STUBS, fixtures=", skill_commands").ret == 0
    assert project.kept == {
        "refused": f"{tool}: refused, call it by its name\n",
        "calls": [[str(tool), "b", 126]],
        "watched": "real c\n",
        "out": "real c\n",
    }


CACHED = f"""
state = []
def answer(argv, stdin, cwd):
    state.append(argv)
    return "{KEY}-is-no-secret-of-mine"
gh = skill_commands("gh", {{"pr": "ok", "count": answer}})
reply = skill_harness("gh pr merge 7\\ngh count\\ngh push --force\\n")
assert gh.called("pr", "merge") and not gh.never("push", "--force")
assert state == [["count"]]
"""


def test_a_cached_run_repeats_its_calls(project: Project) -> None:
    project.use_stub(SHELL)
    few = ("--skillopt", "--skillopt-rollouts=2", "-p", "no:xdist")
    fixtures = ", skill_commands"
    quiet = CACHED.replace(KEY, "one")
    assert project.run(quiet, *few, head=STUBS, fixtures=fixtures).ret == 0
    paid = project.provider.calls
    assert paid == 2
    assert project.run(quiet, *few, head=STUBS, fixtures=fixtures).ret == 0
    assert project.provider.calls == paid
    changed = quiet.replace('"pr": "ok"', '"pr": "no"')
    assert project.run(changed, *few, head=STUBS, fixtures=fixtures).ret == 0
    assert project.provider.calls == 2 * paid


def test_the_calls_are_in_the_transcript_without_secrets(project: Project) -> None:
    project.use_stub(SHELL)
    few = ("--skillopt", "--skillopt-rollouts=1", "-p", "no:xdist")
    assert project.run(CACHED, *few, head=STUBS, fixtures=", skill_commands").ret == 0
    (rollout,) = latest_entries(project.path, "rollout")
    written = json.dumps(rollout)
    assert KEY not in written
    for line in ("$ gh pr merge 7", "[exit code 0] ok", "$ gh push --force", "[exit code 126] gh:"):
        assert line in written


def test_what_an_agent_that_does_nothing_passes_is_named(project: Project) -> None:
    project.use_stub(SHELL)
    project.settings["skillopt_max_rollouts"] = 1
    body = 'gh = skill_commands("gh")\nskill_harness("gh x")\nassert gh.never("push", "--force")'
    done = project.run(body, "--skillopt-train", "-p", "no:xdist", fixtures=", skill_commands")
    done.stdout.fnmatch_lines(["*with an agent that does nothing test_task.py::test_it passes*"])


@pytest.mark.parametrize("agent", ["codex", "claude"])
def test_a_real_agent_runs_the_stub(project: Project, agent: str) -> None:
    if not bundled_path(KNOWN[agent].bundled):
        pytest.skip(f"not installed: {agent}; pip install -e '.[dev]'")
    project.settings |= {
        "skillopt_harness": agent,
        "skillopt_base_url": project.provider.url("shell"),
    }
    body = """
gh = skill_commands("gh", {"pr list": "#7 is open\\n", "pr merge": Exit(1, "conflict\\n")})
reply = skill_harness("RUN: gh pr list --json\\nRUN: echo yes | gh pr merge 7\\nRUN: gh push")
keep(text=reply.text, calls=[[str(c), c.code, c.stdin, c.cwd] for c in gh.calls],
     where=str(workspace))
"""
    assert project.run(body, head=STUBS, fixtures=", skill_commands").ret == 0
    kept = project.kept
    assert kept["calls"] == [
        ["gh pr list --json", 0, "", kept["where"]],
        ["gh pr merge 7", 1, "yes\n", kept["where"]],
        ["gh push", 126, "", kept["where"]],
    ]
    for said in ("#7 is open", "conflict", "gh: refused, it cannot be used so here"):
        assert said in kept["text"]
