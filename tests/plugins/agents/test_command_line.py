"""Models that are runs of a signed-in command line: a fake one on the PATH, and the real ones."""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from greetings import greet
from harness_project import WRITTEN
from patience import PATIENCE, is_alive, wait_until
from run_files import latest_result
from tables import each_row

from pytest_skillopt.model.cache import Replies
from pytest_skillopt.model.config import ModelConfig
from pytest_skillopt.model.types import CapReached, ModelFault
from pytest_skillopt.plugins.agents.command_line import _KNOWN, CommandLineModel
from pytest_skillopt.plugins.agents.known import KNOWN, bundled_path
from pytest_skillopt.plugins.agents.sign_in import _status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chat_server import Body, ChatServer
    from model_server import ModelServer

TOKEN = "plan-token-of-this-test-0123456789"
RULE = "Greetings end with an exclamation mark."
THOUGHT = {"reasoning": f"seen {TOKEN}", "edits": [{"op": "append", "target": "", "content": RULE}]}
FAKE = """
here, name = os.path.split(__file__)
read = lambda name: open(f"{here}/{name}").read()
if sys.argv[1:] == ["login", "status"]:
    print(read("status"))
    raise SystemExit("Not" in read("status"))
prompt = sys.stdin.read()
told = dict(argv=sys.argv[1:], prompt=prompt, env=dict(os.environ), beside=os.listdir("."))
open(f"{here}/call-{time.time_ns()}-{os.getpid()}.json", "w").write(written(told))
text, error = read("thought"), read("error")
if "word OK" in prompt:
    text = "OK"
elif os.path.exists(here + "/later"):
    error = read("later")
if name == "claude":
    block = dict(type="text", text=error or text)
    say(type="assistant", message=dict(content=[block]))
    usage = dict(input_tokens=100, cache_read_input_tokens=20, output_tokens=7)
    usage = dict(input_tokens=0, output_tokens=0) if error else usage
    end = dict(type="result", is_error=bool(error), result=error or text, usage=usage)
    say(**dict(end, subtype="success"))
elif error:
    say(type="turn.failed", error=dict(message=error))
else:
    item = dict(type="agent_message", text=text)
    say(type="item.completed", item=item)
    usage = dict(input_tokens=120, cached_input_tokens=20, output_tokens=7)
    say(type="turn.completed", usage=usage)
sys.exit(bool(error))
"""
TESTS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("name", "Ada Ben Cleo Dan".split())
def test_greeting(skill_agent, name):
    assert skill_agent(f"Greet {name}.").endswith("!"), "it should end with !"
"""


class Programs:
    """A folder on the PATH with fake command lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "error").write_text("")
        (folder / "thought").write_text(json.dumps(THOUGHT))
        (folder / "status").write_text("Logged in using ChatGPT")
        for name in _KNOWN:
            (folder / name).write_text(f"#!{sys.executable} -IS\n{WRITTEN}{FAKE}")
            (folder / name).chmod(0o755)

    def fail(self, words: str, *, later: bool = False) -> None:
        (self.folder / ("later" if later else "error")).write_text(words)

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in self.folder.glob("call-*")]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    found = Programs(tmp_path / "programs")
    monkeypatch.setenv("PATH", f"{found.folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", TOKEN)
    (tmp_path / TOKEN).mkdir()
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / TOKEN))
    _status.cache_clear()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-of-the-plan")
    monkeypatch.setattr("pytest_skillopt.model.client.FIRST_DELAY", 0.001)
    for name in ("CI", "GITHUB_ACTIONS", "TF_BUILD"):
        monkeypatch.delenv(name, raising=False)
    return found


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> pytest.Pytester:
    def reply(body: Body) -> str:
        return greet(body)

    chat_server.reply = reply
    (pytester.path / "SKILL.md").write_text("---\nname: greet\n---\nSay hello.\n")
    pytester.makepyfile(test_greeting=TESTS)
    pytester.makeini(
        "[pytest]\nskillopt_target = openai:m\naddopts = -p no:xdist -p no:cacheprovider\n"
        f"skillopt_base_url = {chat_server.url}\nskillopt_rollouts = 1\n"
    )
    return pytester


def train(project: pytest.Pytester, name: str, *arguments: str) -> tuple[int, str]:
    done = project.runpytest_inprocess(
        "--skillopt-train", f"--skillopt-optimizer=cli:{name}", *arguments
    )
    return int(done.ret), " ".join((done.stdout.str() + done.stderr.str()).split())


def result(project: pytest.Pytester) -> dict[str, Any]:
    return latest_result(project.path)


def test_a_training_by_a_plan(project: pytest.Pytester, programs: Programs) -> None:
    status, shown = train(project, "claude")
    assert (status, result(project)["status"]) == (0, "accepted"), shown
    assert RULE in (project.path / "SKILL.md").read_text()
    calls = programs.calls
    rows = [row for row in result(project)["usage"] if row["role"] == "optimizer"]
    assert sum(row["calls"] for row in rows) == len(calls)
    assert sum(row["input_tokens"] for row in rows) == 120 * len(calls)
    assert sum(row["output_tokens"] for row in rows) == 7 * len(calls)
    assert any("it should end with !" in call["prompt"] for call in calls)
    for call in calls:
        assert call["beside"] == []
        assert TOKEN in json.dumps(call["env"])
        assert not call["env"].keys() & {"OPENAI_API_KEY", "ANTHROPIC_API_KEY"}
        assert TOKEN not in json.dumps(call["argv"])
    assert TOKEN not in shown
    kept = [path for path in project.path.rglob("*") if path.is_file()]
    assert [path for path in kept if TOKEN.encode() in path.read_bytes()] == []

    skill = project.path / "SKILL.md"
    skill.write_text(skill.read_text().replace(RULE, "").rstrip() + "\n")
    train(project, "claude")
    assert len(programs.calls) == len(calls), "the same prompts are answered from the cache"


def test_a_reached_limit_ends_the_run_to_be_continued(
    project: pytest.Pytester, programs: Programs
) -> None:
    programs.fail("Claude AI usage limit reached|1795311426", later=True)
    train(project, "claude")
    assert "the limit of the plan behind cli:claude is reached" in result(project)["reason"]
    assert RULE not in (project.path / "SKILL.md").read_text()
    assert result(project)["resume"]
    sampled = result(project)["rollouts"]
    (programs.folder / "later").unlink()
    status, shown = train(project, "claude", "--skillopt-resume=latest")
    assert (status, result(project)["status"]) == (0, "accepted"), shown
    assert result(project)["rollouts"] > 0 < sampled


def test_a_missing_sign_in_is_said_before_anything_is_sampled(
    project: pytest.Pytester, programs: Programs
) -> None:
    programs.fail("Failed to authenticate. API Error: 401 Invalid bearer token")
    (programs.folder / "claude").write_text(
        (programs.folder / "claude").read_text().replace('if "word OK" in prompt', "if False")
    )
    status, shown = train(project, "claude")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "sign in with: claude setup-token" in shown
    assert "cannot be used: cli:claude: Failed to authenticate" in shown
    assert len(programs.calls) == 1


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("Not logged in", "Not logged in; run `codex login`"),
        ("Logged in using an API key - sk-***", "paid for by the call; run `codex login`"),
    ],
)
def test_codex_without_a_plan_is_refused_at_no_cost(
    project: pytest.Pytester, programs: Programs, status: str, said: str
) -> None:
    (programs.folder / "status").write_text(status)
    code, shown = train(project, "codex")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert said in shown
    assert programs.calls == []


REFUSED = [
    (("--skillopt-optimizer=cli:gpt",), {}, "write cli:claude or cli:codex"),
    (("--skillopt-optimizer=cli:gemini",), {}, "any other model needs a key: openai:MODEL@URL"),
    (("--skillopt-target=cli:claude", "--skillopt-optimizer=cli:claude"), {}, "skill_harness only"),
    (("--skillopt-optimizer=cli:claude",), {"CI": "true"}, "it is refused in CI"),
    (
        ("--skillopt-optimizer=cli:claude", "-oskillopt_requests=optimizer.temperature = 0"),
        {},
        "takes nothing of skillopt_requests",
    ),
]


@pytest.mark.parametrize(("arguments", "variables", "said"), REFUSED)
def test_what_cannot_be_is_said(
    project: pytest.Pytester,
    programs: Programs,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    variables: dict[str, str],
    said: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = project.runpytest_inprocess("--skillopt-train", *arguments)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert said in " ".join(done.stderr.str().split())
    assert programs.calls == []


MADE: list[CommandLineModel] = []


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    """Close the models that a test has made."""
    yield
    while MADE:
        MADE.pop().close()


def make(name: str, **options: Any) -> CommandLineModel:
    timeout = options.pop("timeout", PATIENCE)
    config = ModelConfig(
        "optimizer", "cli", name, "cli", key_env="none", retries=0, request_timeout=timeout
    )
    shared = options.pop("shared", {})
    MADE.append(CommandLineModel(config, shared, replies=Replies("off"), **options))
    return MADE[-1]


def ask(model: CommandLineModel, text: str = "Think.") -> str:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    return model.complete(messages, sample="1", stage="reflect").text


@pytest.mark.parametrize("name", _KNOWN)
def test_every_program_is_asked_and_read(programs: Programs, api_key: str, name: str) -> None:
    """In an empty folder, and with no sign-in or key but its own."""
    messages = [{"role": "user", "content": "Think."}]
    reply = make(name).complete(messages, sample="1", stage="reflect")
    assert json.loads(reply.text)["edits"] == THOUGHT["edits"]
    assert not reply.usage.estimated
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (120, 7)
    (call,) = programs.calls
    assert "Think." in call["prompt"]
    assert call["beside"] == []
    assert TOKEN in json.dumps(call["env"])
    assert not call["env"].keys() & {"OPENAI_API_KEY", "ANTHROPIC_API_KEY"}
    assert TOKEN not in json.dumps(call["argv"])


def test_a_sign_in_of_codex_serves_one_run_at_a_time(programs: Programs) -> None:
    lock = programs.folder / "running"
    hold = f"os.close(os.open({str(lock)!r}, os.O_CREAT | os.O_EXCL))\n"
    free = f"sys.stdout.flush(); os.remove({str(lock)!r})\nsys.exit"
    source = (programs.folder / "codex").read_text()
    source = source.replace("prompt = sys", f"{hold}prompt = sys").replace("sys.exit", free)
    (programs.folder / "codex").write_text(source)
    model = make("codex")
    said = []
    threads = [
        threading.Thread(target=lambda n=n: said.append(ask(model, f"Think of {n}.")))
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 6


@each_row(
    "words",
    ["You've hit your usage limit. Try again at 5 PM.", "5-hour limit reached", "weekly limit"],
)
def test_words_of_a_reached_limit(programs: Programs, words: str) -> None:
    programs.fail(words)
    with pytest.raises(CapReached, match="limit"):
        ask(make("codex"))


def test_an_end_without_an_answer_is_a_fault(programs: Programs) -> None:
    (programs.folder / "claude").write_text(f"#!{sys.executable}\nprint('Welcome')\n")
    with pytest.raises(ModelFault, match="no answer, exit status 0"):
        ask(make("claude"))


def test_what_hangs_is_ended_with_all_that_it_started(programs: Programs, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    (programs.folder / "claude").write_text(
        f"#!{sys.executable}\nimport os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\ntime.sleep(600)\n"
    )
    model = make("claude")
    met = []

    def work() -> None:
        with pytest.raises(ModelFault) as caught:
            ask(model)
        met.append(caught.value)

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    model.close()
    thread.join()
    assert met
    wait_until(lambda: not any(map(is_alive, map(int, pids.read_text().split()))))


def test_a_time_limit_names_its_setting(programs: Programs) -> None:
    (programs.folder / "claude").write_text(f"#!{sys.executable}\nimport time\ntime.sleep(600)\n")
    with pytest.raises(ModelFault, match="skillopt_request_timeout"):
        ask(make("claude", timeout=0.1))


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_the_real_program_answers_without_tools(
    provider: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also a prompt that is too long for an argument; nothing is left that could act."""
    path = bundled_path(KNOWN[name].bundled)
    if not path:
        pytest.skip(f"{name} is not installed; pip install -e '.[dev]'")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    url = provider.url().removesuffix("/v1")
    how = _KNOWN[name]
    harness = KNOWN[name]
    model = "fake-model"
    values = {"url": url, "model": model, "key": "no-real-key", "home": str(home)}
    shared = {n: harness.fill(text, values) for n, text in harness.env.items()}
    for place, text in harness.files.items():
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        (home / place).write_text(harness.fill(text, values))
    if name == "codex":
        ours = {"name": "loop", "base_url": f"{url}/v1", "wire_api": "responses"}
        about = ",".join(f'{key}="{value}"' for key, value in ours.items())
        told = f' -c model_provider="loop" -c model_providers.loop={{{about}}}'
        monkeypatch.setitem(_KNOWN, name, replace(how, argv=how.argv + told))
    provider.thought = '{"reasoning": "none", "edits": []}'
    monkeypatch.setattr(provider, "decide", lambda *_: ("say", provider.thought, {}))
    asked = make(f"{name}/{model}", shared=shared)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": LONG}]
    said = asked.complete(messages, sample="1", stage="reflect")
    assert said.text == provider.thought
    (body,) = provider.bodies
    assert body.get("model", "fake-model") == "fake-model"
    assert "Be brief." in json.dumps(body)
    assert LONG in json.dumps(body)
    assert set(tools_of(body)) <= {"request_user_input"}
    assert (said.usage.calls, said.usage.estimated) == (1, False)
    assert (said.usage.input_tokens, said.usage.output_tokens) == (1000, 25)


LONG = "x" * 300_000


def tools_of(body: Body) -> list[str]:
    """Return the names of the tools that a request brings, in any protocol."""
    found = []
    for tool in body.get("tools") or ():
        nested = tool.get("functionDeclarations") or [tool.get("function") or tool]
        found += [str(part.get("name") or part.get("type") or "") for part in nested]
    return [name for name in found if name]
