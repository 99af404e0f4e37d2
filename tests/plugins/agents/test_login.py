"""Agents under the user's own sign-in: fake command lines on the PATH, and the real ones."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import shlex
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from greetings import proposal
from harness_project import WRITTEN
from patience import PATIENCE
from run_files import latest_result

from pytest_skillopt.cli import main
from pytest_skillopt.plugins.agents import run, sign_in
from pytest_skillopt.plugins.agents.known import KNOWN, bundled_path
from pytest_skillopt.plugins.agents.sandbox import find_bwrap
from pytest_skillopt.plugins.agents.sign_in import _status

if TYPE_CHECKING:
    from harness_project import Project

TOKEN = "plan-token-of-this-test-0123456789"
KINDS = ("toml", "python", "sh")
BOTH = pytest.mark.parametrize("agent", ["claude", "codex"])
FAKE = """
here, name = os.path.split(__file__)
if sys.argv[1:] == ["--version"]:
    raise SystemExit(print("9.9.9"))
if sys.argv[1:] == ["login", "status"]:
    status = open(here + "/status").read()
    print(status)
    raise SystemExit("Not" in status)
plan, prompt = eval(open(here + "/plan").read()), sys.argv[-1]
if name == "claude":
    prompt = sys.argv[sys.argv.index("-p") + 1]
sign_in = os.environ["CODEX_HOME" if name == "codex" else "HOME"] + "/auth.json"
told = dict(argv=sys.argv[1:], env=dict(os.environ), token=os.path.exists(sign_in))
if "out" not in plan:
    open(f"{here}/call-{time.time_ns()}-{os.getpid()}.json", "w").write(written(told))
made = sum(file.startswith("call-") for file in os.listdir(here))

def fail(words, kind="unknown"):
    if name == "codex":
        say(type="turn.failed", error=dict(message=words))
    else:
        block = [dict(type="text", text=words)]
        say(type="assistant", error=kind, message=dict(id="0", model="<synthetic>", content=block))
        say(type="result", subtype="success", is_error=True, result=words, usage=dict())
    raise SystemExit(1)

def call(number, text="", command="", result=""):
    usage = dict(input_tokens=90, cache_read_input_tokens=10, output_tokens=5)
    if name == "codex" and command:
        item = dict(id=f"item_{number}", type="command_execution", command=command)
        say(type="item.started", item=item)
        say(type="item.completed", item=dict(item, exit_code=0, aggregated_output=result))
    elif name == "codex":
        item = dict(id=f"item_{number}", type="agent_message", text=text)
        say(type="item.completed", item=item)
    else:
        block = dict(type="text", text=text)
        if command:
            about = dict(id=f"t{number}", name="Bash", input=dict(command=command))
            block = dict(type="tool_use", **about)
        message = dict(id=f"msg_{number}", model="m", content=[block], usage=usage)
        say(type="assistant", message=message)
        if command:
            block = dict(type="tool_result", tool_use_id=f"t{number}", content=result)
            say(type="user", message=dict(content=[block]))

if plan.get("fail") and made > plan.get("after", 0):
    fail(plan["fail"], plan.get("kind", "unknown"))
if plan.get("rejected") and made > plan.get("after", 0):
    told = dict(status="rejected", rateLimitType="five_hour")
    say(type="rate_limit_event", rate_limit_info=told)
    time.sleep(600)
place = ".claude/skills" if name == "claude" else ".agents/skills"
path = f"{place}/house-greeting/SKILL.md"
skill = open(path).read()
if "no skill" not in prompt:
    call(1, command=f"cat {path}", result=skill)
secret = os.environ.get("CLAUDE_CODE_OAUTH_TOKEN", "")
if name == "codex":
    secret = open(sign_in).read()
if plan.get("leak"):
    call(2, command="env", result=f"the sign-in is {secret}")
    print(f"debug: {secret}", file=sys.stderr)
    open("leak.txt", "w").write(secret)
while plan.get("loop"):
    made += 1
    call(made, command="true", result="")
    time.sleep(0.01)
while plan.get("silent"):
    open(here + "/silent", "w").close()
    time.sleep(1)
open("greeting.txt", "w").write("Ahoy" if "Ahoy" in skill else "Hello")
text = f"Done. {secret}" if plan.get("leak") else "Done."
if "out" in plan:
    text = f"out: {os.path.exists(plan['out'])}, sign-in: {bool(secret)}"
call(3, text=text)
if name == "codex":
    say(type="turn.completed", usage=dict(input_tokens=200, output_tokens=10))
else:
    usage = dict(input_tokens=180, cache_read_input_tokens=20, output_tokens=10)
    say(type="result", subtype="success", is_error=False, result=text, usage=usage)
"""
TASKS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("guest", "Ada Ben Cleo".split())
def test_greeting(skill_harness, skill_workspace, guest):
    skill_harness(f"Greet {guest}.")
    assert (skill_workspace / "greeting.txt").read_text() == "Ahoy"
"""


class Fakes:
    """A folder on the PATH with fake command lines, and a folder with a sign-in of Codex."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "codex-home"
        self.home.mkdir(parents=True)
        (self.home / "auth.json").write_text(json.dumps({"refresh_token": TOKEN}))
        (folder / "status").write_text("Logged in using ChatGPT")
        self.plan()
        for name in ("claude", "codex"):
            (folder / name).write_text(f"#!{sys.executable} -IS\n{WRITTEN}{FAKE}")
            (folder / name).chmod(0o755)

    def plan(self, **what: Any) -> None:
        (self.folder / "plan").write_text(repr(what))

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in self.folder.glob("call-*")]


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    found = Fakes(tmp_path / "programs")
    monkeypatch.setenv("PATH", f"{found.folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", TOKEN)
    monkeypatch.setenv("CODEX_HOME", str(found.home))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-of-the-plan")
    for name in ("CI", "GITHUB_ACTIONS", "TF_BUILD"):
        monkeypatch.delenv(name, raising=False)
    _status.cache_clear()
    return found


@pytest.fixture
def signed_in(project: Project, fakes: Fakes) -> Project:
    """A project whose agents run under a sign-in; only its optimizer has a server."""
    url = project.settings["skillopt_base_url"]
    project.settings = {
        "skillopt_optimizer": f"openai:thinker@{url}",
        "skillopt_sandbox": "none",
    }
    return project


@pytest.fixture
def greeter(signed_in: Project) -> Project:
    """With three tasks."""
    (signed_in.path / "test_greeting.py").write_text(TASKS)
    return signed_in


def words(done: pytest.RunResult) -> str:
    return " ".join((done.stdout.str() + done.stderr.str()).split())


def result(project: Project) -> dict[str, Any]:
    """Return the result of the latest run."""
    return latest_result(project.path)


@BOTH
def test_a_run_is_counted_by_its_own_events(signed_in: Project, fakes: Fakes, agent: str) -> None:
    signed_in.settings["skillopt_target"] = f"cli:{agent}"
    body = """
reply = skill_harness("Greet Ada.")
keep(text=reply, files=reply.files, used=reply.skill_used, read=reply.skill_read,
     usage=[reply.usage.calls, reply.usage.input_tokens, reply.usage.output_tokens],
     tools=len(reply.tool_calls))
"""
    assert signed_in.run(body).ret == 0
    assert signed_in.kept == {
        "text": "Done.",
        "files": {"greeting.txt": "added"},
        "used": True,
        "read": True,
        "usage": [2, 200, 10],
        "tools": 1,
    }
    (call,) = fakes.calls
    assert signed_in.provider.calls == 0
    assert not call["env"].keys() & {"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL"}
    assert TOKEN not in json.dumps(call["argv"])
    assert "--model" not in call["argv"]
    assert call["env"]["HOME"] != str(Path.home())
    if agent == "claude":
        assert call["env"]["CLAUDE_CODE_OAUTH_TOKEN"] == TOKEN
    else:
        assert call["env"]["CODEX_HOME"] == str(fakes.home)
        assert call["token"]
        assert "--ignore-user-config" in call["argv"]


@BOTH
def test_in_bubblewrap_the_agent_has_its_sign_in_and_not_the_users_files(
    signed_in: Project, fakes: Fakes, agent: str
) -> None:
    if not find_bwrap():
        pytest.skip("bubblewrap does not work here")
    signed_in.settings |= {"skillopt_target": f"cli:{agent}", "skillopt_sandbox": "bwrap"}
    fakes.plan(out=str(signed_in.path / "pytest.ini"))
    done = signed_in.run("keep(text=skill_harness('Greet Ada.'))")
    assert done.ret == 0, words(done)
    assert signed_in.kept == {"text": "out: False, sign-in: True"}
    assert (fakes.home / ".skillopt.lock").exists() == (agent == "codex")


def test_the_first_training_is_followed_word_for_word(signed_in: Project, fakes: Fakes) -> None:
    """Only the optimizer has a server here: the fake of Claude Code proposes no edit."""
    page = (Path(__file__).parents[3] / "docs" / "login.md").read_text("utf-8")
    code = {kind: re.search(rf"^```{kind}\n(.*?)^```", page, re.M | re.S) for kind in KINDS}
    settings, test, commands = (found[1] for found in code.values() if found)
    few = {"skillopt_rollouts": 1, "skillopt_final_rollouts": 2}
    signed_in.settings |= {**tomllib.loads(settings), **signed_in.settings, **few}
    (signed_in.path / "test_greeting.py").write_text(test)
    signed_in.skill.write_text(signed_in.skill.read_text().replace("Ahoy", "Hello"))
    signed_in.provider.thought = proposal("Begin every greeting with Ahoy.")
    lines = [line for line in commands.splitlines() if line.startswith("pytest ")]
    measured, planned, trained = (
        signed_in.pytest(*shlex.split(line, comments=True)[1:], "-p", "no:xdist") for line in lines
    )
    assert "Pass rate 0.0 %" in words(measured)
    assert "rollouts: about" in words(planned)
    assert "Written. This undoes" in words(trained)
    assert "Ahoy" in signed_in.skill.read_text()


def test_a_reached_limit_ends_a_training_to_be_continued(greeter: Project, fakes: Fakes) -> None:
    """No answer is counted as wrong, and no agent is started for what was measured before."""
    greeter.settings |= {"skillopt_target": "cli:codex", "skillopt_rollouts": 1}
    greeter.settings |= {"skillopt_cache": "off", "skillopt_final_rollouts": 1}
    greeter.skill.write_text(greeter.skill.read_text().replace("Ahoy", "Hello"))
    greeter.provider.thought = proposal("Begin every greeting with Ahoy.")
    fakes.plan(after=9, fail="You've hit your usage limit. Try again at 5:00 PM.")
    greeter.pytest("--skillopt-train", "-p", "no:xdist")
    stopped = result(greeter)
    assert "the limit of the plan behind" in stopped["reason"]
    assert "cap" in {error["kind"] for error in greeter.errors}
    assert stopped["resume"]
    assert "Ahoy" not in greeter.skill.read_text()
    assert len(fakes.calls) == 10
    fakes.plan()
    greeter.pytest("--skillopt-train", "--skillopt-resume=latest", "-p", "no:xdist")
    final = result(greeter)
    assert final["status"] == "accepted"
    assert "Ahoy" in greeter.skill.read_text()
    assert len(fakes.calls) == 10 + final["rollouts"]
    rows = [row for row in final["usage"] if row["role"] == "target"]
    assert sum(row["calls"] for row in rows) == 2 * (9 + final["rollouts"])


@pytest.mark.parametrize(
    "plan",
    [
        {"fail": "You've hit your session limit · resets 9pm", "kind": "rate_limit"},
        {"fail": "Claude AI usage limit reached|1795311426"},
        {"rejected": True},
    ],
)
def test_a_limit_is_known_in_whatever_form(
    greeter: Project, fakes: Fakes, plan: dict[str, Any]
) -> None:
    greeter.settings |= {"skillopt_target": "cli:claude", "skillopt_rollouts": 1}
    fakes.plan(after=1, **plan)
    done = greeter.pytest("--skillopt", "-p", "no:xdist")
    assert "the limit of the plan behind" in words(done)
    assert {error["kind"] for error in greeter.errors} == {"cap"}
    assert len(fakes.calls) == 2


def test_the_same_question_is_answered_from_the_cache(greeter: Project, fakes: Fakes) -> None:
    """Also with a new token, of which nothing is part of the address."""
    greeter.settings |= {"skillopt_target": "cli:claude", "skillopt_rollouts": 1}
    assert greeter.pytest("--skillopt", "-p", "no:xdist").ret == 0
    os.environ["CLAUDE_CODE_OAUTH_TOKEN"] = "another-token-0123456789"
    assert greeter.pytest("--skillopt", "-p", "no:xdist").ret == 0
    assert len(fakes.calls) == 3


@pytest.mark.parametrize("cap", ["calls", "tokens"])
def test_caps_hold(greeter: Project, fakes: Fakes, cap: str) -> None:
    greeter.settings |= {"skillopt_target": "cli:claude", "skillopt_rollouts": 3}
    most, made = {"calls": (8, 4), "tokens": (700, 3)}[cap]
    greeter.pytest("--skillopt", f"--skillopt-max-{cap}={most}", "-p", "no:xdist")
    assert f"max_{cap}" in json.dumps(result(greeter)["reason"]).replace("-", "_")
    assert len(fakes.calls) == made


def test_a_cap_on_time_holds(greeter: Project, fakes: Fakes) -> None:
    greeter.settings["skillopt_target"] = "cli:claude"
    fakes.plan(rejected=False)
    source = (fakes.folder / "claude").read_text()
    (fakes.folder / "claude").write_text(source.replace("while plan", "time.sleep(1)\nwhile plan"))
    greeter.pytest("--skillopt", "--skillopt-max-time=0.5", "-p", "no:xdist")
    assert "max_time" in json.dumps(result(greeter)["reason"]).replace("-", "_")
    assert len(fakes.calls) < 9


@BOTH
def test_a_refused_sign_in_ends_the_run_and_is_no_wrong_answer(
    greeter: Project, fakes: Fakes, agent: str
) -> None:
    greeter.settings["skillopt_target"] = f"cli:{agent}"
    fakes.plan(fail="Failed to authenticate. API Error: 401 Invalid bearer token")
    greeter.pytest("--skillopt", "-p", "no:xdist")
    how = {"claude": "claude setup-token", "codex": "codex login"}[agent]
    assert f"sign in with: {how}" in result(greeter)["reason"]
    assert len(fakes.calls) == 1
    assert greeter.errors[0]["fatal"]


def test_another_error_of_the_vendor_is_tried_again(signed_in: Project, fakes: Fakes) -> None:
    signed_in.settings |= {"skillopt_target": "cli:claude", "skillopt_rollouts": 1}
    fakes.plan(fail="API Error: 529 overloaded", kind="server_error")
    signed_in.run("skill_harness('Greet Ada.')", "--skillopt", "-p", "no:xdist")
    (row,) = result(signed_in)["skills"][0]["tasks"]
    assert row["before"]["n"] == 0
    assert len(fakes.calls) == 3  # skillopt_max_attempts
    assert "529 overloaded" in signed_in.errors[0]["message"]


@BOTH
def test_a_run_without_end_is_a_wrong_answer(signed_in: Project, fakes: Fakes, agent: str) -> None:
    signed_in.settings["skillopt_target"] = f"cli:{agent}/large"
    fakes.plan(loop=True)
    done = signed_in.run("skill_harness('Greet Ada.', max_turns=4)")
    assert "no final answer after 4 model calls; last commands: true" in words(done)
    (call,) = fakes.calls
    named = call["argv"].index("--model")
    assert call["argv"][named + 1] == "large", "the target names a model of the plan"


def test_a_vendor_that_does_not_answer_is_no_wrong_answer(
    signed_in: Project, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No time passes until it has said its first word, and then 2 s at each look at the clock."""
    silent = fakes.folder / "silent"
    ticks = itertools.count(0.0, 2.0)
    clock = SimpleNamespace(monotonic=lambda: next(ticks) if silent.exists() else 0.0)
    monkeypatch.setattr(run, "time", clock)
    monkeypatch.setattr(sign_in, "time", clock)
    signed_in.settings |= {"skillopt_target": "cli:claude", "skillopt_request_timeout": 0.2}
    fakes.plan(silent=True)
    done = signed_in.run("skill_harness('Greet Ada.', timeout=1.5)")
    assert "ModelFault: claude 9.9.9: the agent got no answer for" in words(done)
    silent.unlink()
    signed_in.settings["skillopt_request_timeout"] = PATIENCE
    done = signed_in.run("skill_harness('Greet Ada.', timeout=1.5)")
    assert "ReplyError: no final answer within 1.5 s" in words(done)


@BOTH
def test_a_trigger_ends_the_run_once_it_is_known(
    signed_in: Project, fakes: Fakes, agent: str
) -> None:
    signed_in.settings["skillopt_target"] = f"cli:{agent}"
    fakes.plan(loop=True)
    signed_in.run("keep(said=[skill_harness.trigger(f'Greet Ada{n}.') for n in ('', ' no skill')])")
    assert signed_in.kept == {"said": [True, False]}


@BOTH
@pytest.mark.parametrize("mode", [(), ("--skillopt", "--skillopt-rollouts=1")], ids=["run", "mode"])
def test_a_token_is_in_no_file_and_in_no_log(
    signed_in: Project,
    fakes: Fakes,
    scratch: Path,
    agent: str,
    mode: tuple[str, ...],
) -> None:
    """Even if the agent prints it, says it, and writes it into its workspace."""
    signed_in.settings["skillopt_target"] = f"cli:{agent}"
    fakes.plan(leak="x")
    logs = ("--log-file=debug.log", "--log-file-level=DEBUG", "-p", "no:xdist")
    done = signed_in.run("reply = skill_harness('Greet Ada.')\nassert not reply", *mode, *logs)
    assert done.ret == 1
    assert len(fakes.calls) == 1, "the agent has told it"
    places = [signed_in.path, scratch, signed_in.path.parent / "basetemp"]
    files = {path for place in places for path in place.rglob("*") if path.is_file()}
    ours = {path for path in files if path.parent.name != "work"}  # that is the agent's own
    assert len(ours) > (8 if mode else 3)
    assert [path for path in ours if TOKEN.encode() in path.read_bytes()] == []
    if mode:  # In an ordinary run the test's own assertion may print what the agent said.
        assert TOKEN not in words(done)


REFUSED: list[tuple[dict[str, Any], tuple[str, ...], dict[str, str], str]] = [
    (
        {},
        (),
        {"CI": "true"},
        "skillopt_target = cli:... uses a person's own sign-in, so it is refused",
    ),
    ({}, (), {"CLAUDE_CODE_OAUTH_TOKEN": ""}, "needs CLAUDE_CODE_OAUTH_TOKEN; run `claude setup-"),
    ({"skillopt_target": "cli:codex"}, ("-n", "2"), {}, "2 rollouts at once cannot share it"),
    ({"skillopt_target": "cli:codex"}, ("-d", "--tx", "3*popen"), {}, "3 rollouts at once"),
    ({"skillopt_target": "cli:codex"}, ("--skillopt-lanes=4",), {}, "4 rollouts at once"),
    ({"skillopt_target": "cli:gemini"}, (), {}, "cli:gemini: this is for claude and codex only"),
    ({"skillopt_harness": "codex"}, (), {}, "is for claude, and a test uses codex"),
    ({"skillopt_harness_login": "yes"}, (), {}, "set skillopt_target = cli:claude or cli:codex"),
    ({"skillopt_requests": "temperature = 0"}, (), {}, "takes nothing of skillopt_requests"),
]


@pytest.mark.parametrize(("settings", "arguments", "variables", "said"), REFUSED)
def test_what_cannot_be_is_said_before_anything_starts(
    greeter: Project,
    fakes: Fakes,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    arguments: tuple[str, ...],
    variables: dict[str, str],
    said: str,
) -> None:
    monkeypatch.setitem(KNOWN, "gemini", replace(KNOWN["gemini"], executable="codex"))
    greeter.settings |= {"skillopt_target": "cli:claude"} | settings
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = greeter.pytest("--skillopt", *(arguments or ("-p", "no:xdist")))
    assert said in words(done)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert fakes.calls == []


def test_codex_without_a_plan_or_with_texts_of_the_users_is_refused(
    greeter: Project, fakes: Fakes
) -> None:
    greeter.settings["skillopt_target"] = "cli:codex"
    (fakes.home / "AGENTS.md").write_text("Begin every greeting with Ahoy.")
    done = greeter.pytest("--skillopt", "-p", "no:xdist")
    assert "AGENTS.md, which is not part of the test" in words(done)
    (fakes.home / "AGENTS.md").unlink()
    for status, said in [
        ("Logged in using an API key - sk-***", "paid for by the call; run `codex login`"),
        ("Not logged in", "Not logged in; run `codex login`"),
    ]:
        (fakes.folder / "status").write_text(status)
        _status.cache_clear()
        done = greeter.pytest("--skillopt", "-p", "no:xdist")
        assert done.ret == pytest.ExitCode.USAGE_ERROR
        assert said in words(done)
    assert fakes.calls == []


def test_a_model_for_chats_is_asked_for_before_anything_starts(
    signed_in: Project, fakes: Fakes
) -> None:
    signed_in.settings["skillopt_target"] = "cli:claude"
    source = "skill_agent('Hello.')"
    done = signed_in.run(source, "--skillopt", "-p", "no:xdist", fixtures=", skill_agent")
    assert "skill_agent needs skillopt_target = openai:MODEL" in words(done)
    assert fakes.calls == []


def test_the_action_refuses_it(
    greeter: Project, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``job`` is what the step of action.yml that trains runs; the forge sets the variable."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    greeter.settings["skillopt_target"] = "cli:claude"
    greeter.write()
    assert main(["job", "--max-calls=10", "--args=-p no:xdist -p no:cacheprovider"]) != 0
    assert fakes.calls == []


def test_the_plan_says_whose_sign_in_it_is(greeter: Project, fakes: Fakes) -> None:
    greeter.settings["skillopt_target"] = "cli:claude"
    said = "use your own sign-in and its plan (cli:claude)"
    assert said in words(greeter.pytest("--skillopt", "--collect-only"))
    assert fakes.calls == []
    greeter.pytest("--skillopt", "--skillopt-rollouts=1", "-p", "no:xdist")
    assert any(said in note for note in result(greeter)["notes"])


@BOTH
def test_the_real_program_runs_under_its_sign_in(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str
) -> None:
    """Its vendor's server is on loopback; everything else is as a user has it."""
    if not bundled_path(KNOWN[agent].bundled):
        pytest.skip(f"{agent} is not installed; pip install -e '.[dev]'")
    for name in ("CI", "GITHUB_ACTIONS", "TF_BUILD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    url = project.provider.url().removesuffix("/v1")
    project.settings = {"skillopt_target": f"cli:{agent}"}
    if agent == "claude":
        monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", TOKEN)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        project.settings["skillopt_harness_env"] = "ANTHROPIC_BASE_URL"
    else:
        home = tmp_path / "sign-in"
        home.mkdir()
        (home / "auth.json").write_text(json.dumps(chatgpt_sign_in()))
        monkeypatch.setenv("CODEX_HOME", str(home))
        ours = f'name = "loop", base_url = "{url}/v1", wire_api = "responses"'
        ours = f"{{{ours}, requires_openai_auth = true}}".replace(" ", "")
        argv = f'-c model_provider="loop" -c model_providers.loop={ours} {{prompt}}'
        argv = KNOWN["codex"].argv.replace("{prompt}", argv)
        monkeypatch.setitem(KNOWN, "codex", replace(KNOWN["codex"], argv=argv))
        # The tools of the models that it knows by name are not those of the loopback model.
        project.settings["skillopt_target"] = "cli:codex/fake-model"
        _status.cache_clear()
    body = """
reply = skill_harness("Greet Ada for the front desk.")
keep(text=reply, files=reply.files, used=reply.skill_used, read=reply.skill_read,
     calls=reply.usage.calls, tokens=[reply.usage.input_tokens, reply.usage.output_tokens],
     written=(workspace / "greeting.txt").read_text(), cached=reply.usage.estimated,
     triggers=skill_harness.trigger("Greet Ada."))
"""
    done = project.run(body)
    assert done.ret == 0, words(done)
    assert project.kept == {
        "text": "Done: greeted Ada.",
        "files": {"greeting.txt": "added"},
        "used": True,
        "read": True,
        "calls": 3,
        "tokens": [3000, 75],
        "written": "Ahoy Ada\n",
        "cached": False,
        "triggers": True,
    }
    assert project.provider.calls >= 4
    sent = [headers["authorization"] for path, headers in project.provider.requests]
    wanted = TOKEN if agent == "claude" else chatgpt_sign_in()["tokens"]["access_token"]
    assert set(sent) == {f"Bearer {wanted}"}


def chatgpt_sign_in() -> dict[str, Any]:
    """Return what ``codex login`` would write, with tokens that nobody has issued."""

    def part(**what: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(what).encode()).decode().rstrip("=")

    told = {"chatgpt_plan_type": "plus", "chatgpt_account_id": "a", "chatgpt_user_id": "u"}
    claims = {
        "email": "a@example.org",
        "exp": 4_102_444_800,
        "https://api.openai.com/auth": told,
    }
    token = ".".join([part(alg="none"), part(**claims), part(signature="none")])
    tokens = {"id_token": token, "access_token": token, "refresh_token": "rt", "account_id": "a"}
    today = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"auth_mode": "chatgpt", "tokens": tokens, "last_refresh": today}
