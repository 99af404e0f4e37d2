"""Agents that no adapter knows: a test's own behind the proxy, and one that speaks ACP."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
from harness_project import CALL

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness_project import Project

OWN = """
import json, pytest, urllib.request

def ask(url, text):
    body = {"model": "any", "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(url + "/v1/chat/completions",
                                     json.dumps(body).encode())
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]

APART = pytest.param(False, marks=pytest.mark.skill_task(trigger=False), id="apart")

@pytest.mark.skill_task
@pytest.mark.parametrize("reads", [True, False, APART])
def test_own(skill, skill_proxy, reads):
    assert ask(skill_proxy, skill.path.joinpath("SKILL.md").read_text() if reads else "Hi.")
"""
VERSION = """
import sys
if "--version" in sys.argv:
    sys.exit("agent 3.2.1")
"""
ACP = """\
import json

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def update(**what):
    send(method="session/update", params={"sessionId": "s", "update": what})

exec(ODD.get("start", ""))
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params")
    if method == "session/new":
        modes = {"availableModes": [{"id": "ask"}, {"id": "yolo"}]}
        os.chdir(params["cwd"])
        exec(ODD.get("session", ""))
        send(id=message["id"], result={"sessionId": "s", "modes": modes})
    elif method == "session/set_mode":
        mode = params["modeId"]
        send(id=message["id"], result={})
    elif method == "session/prompt":
        skill = open(".agents/skills/house-greeting/SKILL.md").read()
        os.environ["BASE_URL"] = os.environ["OPENAI_BASE_URL"]
        call(skill, "/chat/completions")
        open("greeting.txt", "w").write("Ahoy Ada\\n")
        read = {"path": ".agents/skills/house-greeting/SKILL.md"}
        update(sessionUpdate="tool_call", toolCallId="1", title="read", rawInput=read)
        update(sessionUpdate="tool_call_update", toolCallId="1", status="completed",
               content=[{"type": "content", "content": {"type": "text", "text": skill}}])
        update(sessionUpdate="tool_call", toolCallId="2", title="sh", rawInput={"command": "ls"})
        options = [{"kind": "reject_once", "optionId": "no"},
                   {"kind": "allow_once", "optionId": "yes"}]
        send(id="q", method="session/request_permission", params={"options": options[:1]})
        cancelled = {"outcome": {"outcome": "cancelled"}}
        assert json.loads(sys.stdin.readline())["result"] == cancelled
        send(id="p", method="session/request_permission", params={"options": options})
        answer = json.loads(sys.stdin.readline())["result"]["outcome"]["optionId"]
        update(sessionUpdate="tool_call_update", toolCallId="2", status="completed")
        for piece in ("Done: ", answer, " ", mode):
            content = {"type": "text", "text": piece}
            update(sessionUpdate="agent_message_chunk", content=content)
        exec(ODD.get("answer", ""))
        send(id=message["id"], result={"stopReason": STOP})
        exec(ODD.get("after", ""))
    else:
        send(id=message["id"], result={})
"""


@pytest.mark.parametrize("arguments", [("-p", "no:xdist"), ("-n1", "--skillopt-lanes=2")])
def test_an_own_agent_has_the_same_evidence(project: Project, arguments: tuple[str, ...]) -> None:
    (project.path / "test_own.py").write_text(OWN)
    assert project.pytest("--skillopt", "--skillopt-rollouts=2", *arguments).ret == 0
    rows = {row["id"]: row for row in project.result["skills"][0]["tasks"]}
    read = {name.partition("[")[2]: row["before"]["read"] for name, row in rows.items()}
    assert read == {"True]": 2, "False]": 0, "apart]": 0}
    (note,) = [note for note in project.result["notes"] if "was read in no rollout" in note]
    assert note.endswith("of 1 of 2 tasks: test_own.py::test_own[False]")
    (usage,) = [row for row in project.result["usage"] if row["role"] == "target"]
    assert usage["calls"] == project.provider.calls == 6
    assert usage["input_tokens"] == 6000
    assert project.pytest("-p", "no:xdist").ret == 0


def test_a_fault_is_not_an_own_agents_wrong_answer(project: Project) -> None:
    (project.path / "test_own.py").write_text(OWN)
    project.settings |= {
        "skillopt_base_url": project.provider.url("status-500"),
        "skillopt_max_attempts": 1,
        "skillopt_rollouts": 1,
    }
    project.pytest("--skillopt", "-p", "no:xdist")
    words = {error["message"] for error in project.errors}
    assert words == {"openai:fake-model: HTTP 500: scripted 500 (after 7 tries)"}


@pytest.fixture
def speaks(project: Project) -> Callable[..., None]:
    """Have tasks run an agent that speaks ACP, with something odd at ``start`` and later."""

    def write(stop: str = "end_turn", **odd: str) -> None:
        head = f"#!{sys.executable} -IS\nSTOP, ODD = {stop!r}, {odd!r}\n{VERSION}{CALL}"
        (project.path / "agent").write_text(head + ACP)
        (project.path / "agent").chmod(0o755)
        project.settings |= {
            "skillopt_harness": f"acp:{project.path / 'agent'} --acp",
            "skillopt_sandbox": "none",
        }

    return write


@pytest.mark.parametrize(("stop", "said"), [("end_turn", ""), ("refusal", "refusal")])
def test_any_agent_that_speaks_acp(
    project: Project, speaks: Callable[..., None], stop: str, said: str
) -> None:
    speaks(stop)
    body = (
        "reply = skill_harness('Greet Ada.')\n"
        "keep(text=reply, used=reply.skill_used, read=reply.skill_read, ran=reply.ran('^ls$'),\n"
        "     files=reply.files, version=skill_harness.harness.version, calls=reply.usage.calls)"
    )
    done = project.run(body)
    if said:
        done.stdout.fnmatch_lines([f"*ModelFault: acp:* 3.2.1: the agent stopped: {said}"])
        return
    assert project.kept == {
        "text": "Done: yes yolo",
        "used": True,
        "read": True,
        "ran": True,
        "files": {"greeting.txt": "added"},
        "version": "3.2.1",
        "calls": 1,
    }


FOREVER = "import time\nsys.stdin.close()\nwhile True: time.sleep(1000)"
FLOOD = """
try:
    while True: os.write(1, b'x' * 65536)
except OSError:
    os._exit(0)
"""
ASKS = """
for params in (None, 5, {"options": None}, {"options": ["x", {"kind": 5}, {"kind": "allow"}]}):
    send(id="odd", method="session/request_permission", params=params)
for method in ("fs/read_text_file", "fs/write_text_file", "terminal/create"):
    send(id=method, method=method, params={"path": "/etc/passwd", "command": "id"})
said = [json.loads(sys.stdin.readline()) for _ in range(7)]
assert all("outcome" in one["result"] for one in said[:4]), said
assert all(one["error"]["code"] == -32601 for one in said[4:]), said
"""
TOO_DEEP = "print('[' * 100_000, flush=True)"
NO_TEXT = "os.write(1, b'\\xff\\xfe {\\n\\n')"
TO_OTHER_REQUESTS = "[send(id=n, result={'stopReason': 'refusal'}) for n in (0, 1, 99, 'x', None)]"
IN_PARTS = "os.write(1, b'{\"jsonrpc\": '); os.write(1, b'\"2.0\"}\\n')"
NO_MODES = "modes = 'abc'; mode = 'yolo'"
ODD = {
    "it does not end": {"answer": f"{TOO_DEEP}\n{NO_TEXT}\n{IN_PARTS}{ASKS}", "after": FOREVER},
    "it prints without end": {
        "session": NO_MODES,
        "answer": TO_OTHER_REQUESTS,
        "after": FLOOD,
    },
}


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_agent_has_answered(project: Project, speaks: Callable[..., None], odd: str) -> None:
    speaks(**ODD[odd])
    project.run("keep(text=skill_harness('Greet Ada.', timeout=0))")
    assert project.kept == {"text": "Done: yes yolo"}


BROKEN = {
    "a message of the agent is longer than": {"answer": f"os.write(1, b'{{')\n{FLOOD}"},
    "session/prompt: the agent ended": {
        "answer": "import time\nif os.fork(): os._exit(0)\ntime.sleep(1000)"
    },
}


@pytest.mark.parametrize("words", BROKEN)
def test_an_agent_that_leaves_is_no_wrong_answer(
    project: Project, speaks: Callable[..., None], words: str
) -> None:
    """Nobody waits for a process that it has left behind, or for the end of a line."""
    project.settings |= {"skillopt_max_attempts": 1, "skillopt_rollouts": 1}
    speaks(**BROKEN[words])
    project.run("skill_harness('Greet Ada.', timeout=0)", "--skillopt", "-p", "no:xdist")
    (error,) = project.errors
    assert words in error["message"]


TALKS = """\
import json

KEPT = os.path.join(os.environ["HOME"], "said.json")

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def say(text):
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    send(method="session/update", params={"sessionId": "s-1", "update": update})

said = []
for line in sys.stdin:
    message = json.loads(line)
    method, params, result = message.get("method"), message.get("params"), {}
    if method == "initialize":
        result = {"agentCapabilities": {"loadSession": LOADS}}
    elif method == "session/new":
        result = {"sessionId": "s-1"}
    elif method == "session/load":
        assert params["sessionId"] == "s-1"
        said = json.load(open(KEPT))
        say(f"Replayed: {said}.")
        result = None
    elif method == "session/prompt":
        os.environ["BASE_URL"] = os.environ["OPENAI_BASE_URL"]
        call("x", "/chat/completions")
        said.append(params["prompt"][0]["text"])
        json.dump(said, open(KEPT, "w"))
        say(f"I heard {' and '.join(said)}.")
        result = {"stopReason": "end_turn"}
    send(id=message["id"], result=result)
"""
TALK = """
talk = skill_user(skill_harness, turns=["one", "two", "three"], copy="fixture")
again = skill_harness.new()
keep(said=talk.text, ended=talk.ended, again=again("other"), files=os.listdir(workspace),
     turns=[turn.content for turn in rollout.transcript if turn.role == "assistant"])
"""


@pytest.mark.parametrize("loads", [True, False])
def test_a_conversation_over_acp_is_one_session(
    project: Project, speaks: Callable[..., None], loads: bool
) -> None:
    speaks()
    (project.path / "fixture").mkdir()
    (project.path / "fixture" / "README").write_text("Hello.")
    head = f"#!{sys.executable} -IS\nLOADS = {loads}\n{VERSION}{CALL}"
    (project.path / "agent").write_text(head + TALKS)
    project.settings |= {"skillopt_max_attempts": 1, "skillopt_rollouts": 1}
    project.run(TALK, "--skillopt", "-p", "no:xdist", fixtures=", skill_user")
    if not loads:
        (error,) = project.errors
        assert "session/load: the agent cannot continue a session" in error["message"]
        return
    heard = ["I heard one.", "I heard one and two.", "I heard one and two and three."]
    assert project.kept == {
        "said": heard[-1],
        "ended": "silence",
        "again": "I heard other.",
        "files": ["README"],
        "turns": [*heard, "I heard other."],
    }


def test_a_conversation_with_an_agent_that_does_nothing_starts_none(
    project: Project, speaks: Callable[..., None]
) -> None:
    speaks()
    head = f"#!{sys.executable} -IS\nLOADS = True\n{VERSION}{CALL}"
    (project.path / "agent").write_text(head + TALKS)
    project.settings["skillopt_optimizer"] = "openai:fake-model"
    body = """
    if rollout.request.is_idle:
        talk = skill_user(skill_harness, turns=["one", "two"])
        keep(messages=talk.messages, ended=talk.ended)
    """
    one = ("--skillopt-train", "-oskillopt_max_rollouts=1", "-p", "no:xdist")
    done = project.run(textwrap.dedent(body), *one, fixtures=", skill_user")
    silence = [{"role": "user", "content": "one"}, {"role": "assistant", "content": ""}]
    assert project.kept == {"messages": silence, "ended": "silence"}
    said = " ".join(done.stdout.str().split())
    assert "with an agent that does nothing test_task.py::test_it passes" in said


def test_an_agent_without_sessions_says_so(project: Project) -> None:
    project.use_stub("call()\nsay(text='Done.')")
    done = project.run("skill_user(skill_harness, turns=['one', 'two'])", fixtures=", skill_user")
    done.stdout.fnmatch_lines(["*ValueError: stub cannot continue a session*"])


def test_what_an_agent_leaves_in_its_home_leads_nowhere(project: Project) -> None:
    """Its settings are written anew in each turn, in place of a link to a file of the user."""
    (project.path / "precious").write_text("mine")
    project.use_stub(
        "call()\n"
        "here = os.path.join(os.environ['HOME'], 'agent.py')\n"
        "os.remove(here)\n"
        f"os.symlink({str(project.path / 'precious')!r}, here)\n"
        "say(text='Done.')"
    )
    stub = (project.path / "stub.py").read_text()
    argv = '"{executable} -I -S {home}/agent.py {session}"'
    stub = stub.replace('"{executable} -I -S {home}/agent.py"', argv)
    named = 'trace.done = True\n        trace.session = "s"'
    (project.path / "stub.py").write_text(stub.replace("trace.done = True", named))
    project.settings["skillopt_sandbox"] = "none"
    body = "keep(text=skill_user(skill_harness, turns=['one', 'two']).messages)"
    project.run(body, fixtures=", skill_user")
    assert [one["content"] for one in project.kept["text"]] == ["one", "Done.", "two", "Done."]
    assert (project.path / "precious").read_text() == "mine"
