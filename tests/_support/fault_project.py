"""A small project that is trained against a loopback server, and what its training comes to.

Each guest wants an exclamation mark, and one rule that the optimizer proposes takes it away: so an
edit is accepted and one is given up. Every reply is a function of only its request, so whatever
disturbs a training, its verdicts must be those of an undisturbed one.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import warm_sessions
from patience import PATIENCE, wait_until
from sessions import clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pytest
    from chat_server import Body, ChatServer

SKILL = b"---\nname: greeting\ndescription: Greets guests.\n---\n# Greeting\n\nSay hello.\n"
NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal", "Ida", "Jo", "Kim", "Lea")
RULES = {
    "exclamation": "End every greeting with an exclamation mark.",
    "whisper": "Whisper, and never raise your voice.",
}
SPLITS = ("train", "val", "train", "val", "train", "test") * 2
TESTS = f"""
import os, pytest, sys, threading, time

GUESTS = [
    pytest.param(name, id=name, marks=pytest.mark.skill_task(split=split))
    for name, split in list(zip({NAMES}, {SPLITS}))[:COUNT]
]

@pytest.mark.parametrize("name", GUESTS)
def test_greeting(skill_agent, name):
    \"\"\"Greets a guest.\"\"\"
    misbehave(name)
    reply = skill_agent(f"Greet {{name}}.")
    assert reply.endswith("!"), "no exclamation mark"
"""
QUICK = (
    "--skillopt-rollouts=1",
    "-oskillopt_final_rollouts=1",
    "--skillopt-cache=off",
    "-p",
    "no:cacheprovider",
)
"""Few samples, and no reply twice for one price: what is not asked for again is in the journal."""


def play(body: Body) -> str:
    """The target follows the rules that the skill states; the optimizer proposes them."""
    if is_optimizer(body):
        rules = RULES if "Eve" in json.dumps(body["messages"]) else ["exclamation"]
        edits = [{"op": "append", "target": "", "content": RULES[rule]} for rule in rules]
        return json.dumps({"reasoning": "the replies lack it", "edits": edits})
    skill, name = (body["messages"][i]["content"] for i in (0, -1))
    loud = RULES["exclamation"] in skill and RULES["whisper"] not in skill
    return f"Hello{name[5:-1]}{'!' if loud else '.'}"


def is_optimizer(body: Body) -> bool:
    return bool(body["model"] == "thinker")


class FaultProject:
    """A project in a folder of its own, whose models are played by ``server``."""

    def __init__(
        self,
        path: Path,
        server: ChatServer,
        pytester: pytest.Pytester | None = None,
        *,
        guests: int = 6,
    ) -> None:
        self.path = path
        self.names = NAMES[:guests]
        self._pytester = pytester
        self.server = server
        server.reply = play
        self.skill = path / "SKILL.md"
        self.skill.write_bytes(SKILL)
        self.write_tests()
        (path / "pytest.ini").write_text(
            "[pytest]\n"
            "skillopt_target = openai:worker\n"
            "skillopt_optimizer = openai:thinker\n"
            f"skillopt_base_url = {server.url}\n"
        )

    def write_tests(self, misbehaviour: str = "pass") -> None:
        """``misbehaviour`` is a statement in which ``name`` is the guest; every task begins so."""
        definition = f"\ndef misbehave(name):\n    {misbehaviour}\n"
        count = f"COUNT = {len(self.names)}"
        (self.path / "test_greeting.py").write_text(count + TESTS + definition)

    def start(
        self, *arguments: str, env: Mapping[str, str] | None = None, largest_file: int = 0
    ) -> warm_sessions.Session:
        """A training in a process of its own; its output is to be read from ``stdout``.

        Args:
            largest_file: bytes beyond which no file may grow: a write fails as on a full disk.
        """
        environment = clean_environment(OPENAI_API_KEY="sk-test-0123456789", **(env or {}))
        command = ("--skillopt-train", *QUICK, *arguments)
        return warm_sessions.start(
            *command, cwd=self.path, env=environment, largest_file=largest_file
        )

    def run(self, *arguments: str, expect: int = 0, **options: Any) -> str:
        """A training to its end, with ``options`` in a process of its own; what it has printed."""
        if self._pytester and not options:
            done = self._pytester.runpytest_inprocess("--skillopt-train", *QUICK, *arguments)
            output = done.stdout.str() + done.stderr.str()
            status = int(done.ret)
        else:
            process = self.start(*arguments, **options)
            output, _ = process.communicate(timeout=PATIENCE)
            status = process.wait()
        assert status == expect, output
        assert "INTERNALERROR" not in output, output
        assert "Traceback" not in output, output
        return output

    def evaluate(self, *arguments: str) -> str:
        """Return what ``--skillopt`` has printed, in a session within this process."""
        assert self._pytester is not None
        done = self._pytester.runpytest_inprocess("--skillopt", "--skillopt-cache=off", *arguments)
        return done.stdout.str()

    def clear(self) -> None:
        """Forget all runs and what they have changed."""
        shutil.rmtree(self.path / ".skillopt", ignore_errors=True)
        self.skill.write_bytes(SKILL)
        self.server.requests.clear()

    @property
    def run_directory(self) -> Path:
        """The one run: whatever is continued begins no other."""
        (found,) = (self.path / ".skillopt" / "runs").iterdir()
        return found

    @property
    def result(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.run_directory / "result.json").read_text())
        return loaded

    def journal(self, kind: str) -> list[dict[str, Any]]:
        """The entries of one kind; a torn last line is none."""
        lines = (self.run_directory / "journal.jsonl").read_bytes().split(b"\n")[:-1]
        return [entry for line in lines if (entry := json.loads(line))["kind"] == kind]

    @property
    def workers(self) -> list[Path]:
        """A file for each worker that is alive, where the project registers them."""
        return list(self.path.glob("worker-*"))

    @property
    def target_calls(self) -> int:
        return sum(not is_optimizer(body) for body in self.server.bodies)


def outcome(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a training has found, without calls, tokens and money."""
    taken = ("calls", "tokens", "cost")
    return [
        {
            **skill,
            "cost": None,
            "tasks": [{k: v for k, v in row.items() if k not in taken} for row in skill["tasks"]],
        }
        for skill in result["skills"]
    ]


def wait_for(condition: Callable[[], bool], process: warm_sessions.Session) -> bool:
    """Wait until something has happened; False if the process ended before."""
    wait_until(lambda: condition() or process.poll() is not None)
    return condition()
