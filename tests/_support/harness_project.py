"""A project whose tasks run in a coding agent, real or a stub."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from run_files import latest_entries, latest_result

from pytest_skillopt.plugins.agents.known import installed

if TYPE_CHECKING:
    import pytest
    from model_server import ModelServer

QUICK = """\
from pytest_skillopt.model import client


def pytest_configure(config):
    usual = client.FIRST_DELAY
    client.FIRST_DELAY = 0.001
    config.add_cleanup(lambda: setattr(client, "FIRST_DELAY", usual))
"""
"""Its tests also run in the process of other tests."""
KEY = "sk-test-0123456789abcdefghij"
SKILL = """\
---
name: house-greeting
description: How this house writes a greeting file. Use whenever asked to greet a guest.
---
# House greeting

RULE: the first word of every greeting file is Ahoy

Write the greeting to greeting.txt as `<first word> <name>`.
"""
STUB = '''\
"""A harness of a project's own: runs agent.py, which prints JSON lines."""
import sys
from pathlib import Path

from pytest_skillopt.plugins.agents.known import Harness


def read(event, trace):
    if "ran" in event:
        trace.ran("shell", event["ran"], event.get("result", ""))
    if "text" in event:
        trace.say(event["text"])
        trace.done = True


AGENT = Harness(
    "stub",
    "{executable} -I -S {home}/agent.py",
    read,
    "nothing",
    executable=sys.executable,
    env={"BASE_URL": "{url}", "MODEL": "{model}", "PROMPT": "{prompt}"},
    files={"agent.py": Path(__file__).with_name("agent.py").read_text()},
    tested="1.0",
)
'''
WRITTEN = """
import _json, os, sys, time

def written(value):
    if isinstance(value, dict):
        return "{%s}" % ", ".join(f"{written(k)}: {written(v)}" for k, v in value.items())
    if isinstance(value, list):
        return "[%s]" % ", ".join(map(written, value))
    if isinstance(value, str):
        return _json.encode_basestring_ascii(value)
    return "null" if value is None else str(value).lower()

def say(**event):
    print(written(event), flush=True)
"""
"""Beginning of a program that prints JSON lines, and starts without the import of ``json``."""
CALL = (
    WRITTEN
    + """
import _socket

def call(text="x", path="/v1/chat/completions"):
    body = written({"model": "any", "messages": [{"role": "user", "content": text}]}).encode()
    address, _, name = os.environ["BASE_URL"].removeprefix("http://").partition("/")
    host, _, port = address.partition(":")
    connection = _socket.socket()
    connection.connect((host, int(port)))
    head = f"POST /{name}{path} HTTP/1.0\\r\\ncontent-length: {len(body)}\\r\\n\\r\\n"
    connection.sendall(head.encode() + body)
    said = b""
    while more := connection.recv(1 << 16):
        said += more
    assert said.startswith(b"HTTP/1.1 200 "), said
"""
)
"""Beginning of each stub, which starts in a third of the time that urllib and json take."""


class Project:
    """A project in pytester's folder."""

    def __init__(self, pytester: pytest.Pytester, provider: ModelServer) -> None:
        self.pytester = pytester
        self.provider = provider
        self.path = pytester.path
        self.settings: dict[str, Any] = {
            "skillopt_base_url": provider.url(),
            "skillopt_target": "openai:fake-model",
        }
        self.conftest = QUICK
        """Nobody waits long between two tries. (See the fixture, too: workers are processes.)"""
        folder = pytester.path / "skills" / "house-greeting"
        folder.mkdir(parents=True)
        self.skill = folder / "SKILL.md"
        self.skill.write_text(SKILL)

    def use_stub(self, agent: str, **about: object) -> None:
        """Have tasks run a script in place of an agent; ``about`` are fields of its harness."""
        more = "".join(f"    {name}={value!r},\n" for name, value in about.items())
        (self.path / "stub.py").write_text(STUB.replace("    tested=", f"{more}    tested="))
        (self.path / "agent.py").write_text(CALL + agent)
        self.settings |= {"skillopt_harness": "stub:AGENT", "pythonpath": "."}

    def run(
        self, body: str, *arguments: str, head: str = "", fixtures: str = ""
    ) -> pytest.RunResult:
        """Run one task with this body; ``reply.json`` gets what it hands to ``keep``."""
        lines = "\n".join("    " + line for line in body.strip().splitlines())
        source = (
            "import json, os, pathlib, pytest\n"
            "def keep(**what):\n"
            "    pathlib.Path(__file__).with_name('kept.json').write_text(json.dumps(what))\n"
            f"{head}\n"
            "@pytest.mark.skill_task\n"
            f"def test_it(skill, skill_harness, skill_workspace, rollout{fixtures}):\n"
            f"    workspace = skill_workspace\n{lines}\n"
        )
        (self.path / "test_task.py").write_text(source)
        return self.pytest(*arguments)

    def write(self) -> None:
        """Write the settings and the ``conftest.py``."""
        ini = "\n".join(f"{name} = {value}" for name, value in self.settings.items())
        (self.path / "conftest.py").write_text(self.conftest)
        (self.path / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
        installed.cache_clear()  # The stub may be another one by now.

    def pytest(self, *arguments: str) -> pytest.RunResult:
        self.write()
        return self.pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)

    @property
    def kept(self) -> dict[str, Any]:
        """Return what the task handed to ``keep``."""
        found: dict[str, Any] = json.loads((self.path / "kept.json").read_text())
        return found

    @property
    def result(self) -> dict[str, Any]:
        """Return the result of the only run of a mode."""
        return latest_result(self.path)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The infrastructure errors in the journal of the only run, with their tasks."""
        rows = latest_entries(self.path, "error")
        return [{**row["error"], "task": row["request"]["task"]} for row in rows]
