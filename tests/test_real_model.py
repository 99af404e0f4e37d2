"""The benchmark with a real model: its training with a stand-in for the model, and its replay."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chat_server import ChatServer

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
DATA = json.loads((BENCHMARKS / "data" / "real_model.json").read_text())


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=BENCHMARKS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_suite_is_trained_through_the_plugin(chat_server: ChatServer) -> None:
    """The pool's lines go through the optimizer's server into the SKILL.md of the suite."""
    forms = DATA["suites"]["forms"]
    answers = {prompt: answer for _, prompt, answer in forms["tasks"]}

    def reply(body: dict[str, Any]) -> str:
        skill, prompt = (message["content"] for message in body["messages"])
        return str(answers[prompt]) if forms["pool"][0] in skill else "I do not know."

    chat_server.reply = reply
    said = run(
        "real_model.py", "--base-url", chat_server.url, "--train", "forms", "--rollouts", "300"
    )
    assert said.startswith("accepted: "), said
    assert f"+- {forms['pool'][0]}" in said


def test_what_was_measured_is_replayed() -> None:
    said = run("learning.py", "--worlds", "tickets,forms", "--caps", "60", "--seeds", "1")
    assert [line[:9] for line in said.splitlines()[2:4]] == ["| tickets", "| forms |"]


def test_the_computed_rates_agree_with_samples() -> None:
    """No task of a set that was also sampled lies far outside the noise of its samples."""
    for suite in DATA["suites"].values():
        for row in (row for row in suite["sets"] if "passed" in row):
            for rate, passed in zip(row["rates"], row["passed"], strict=True):
                n = row["samples"]
                noise = (rate * (1 - rate) / n) ** 0.5
                assert abs(passed / n - rate) < 4 * noise + 1 / n, row
