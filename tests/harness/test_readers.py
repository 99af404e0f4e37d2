"""What the adapters make of events that the agents printed on loopback; see ``trim.py`` there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_skillopt.harness.adapters import KNOWN
from pytest_skillopt.harness.agent import read_events
from pytest_skillopt.harness.records import Job, Trace

STREAMS = Path(__file__).parents[1] / "data" / "harness_streams"
NAMES = ["copilot", "gemini", "opencode", "pi", "qwen"]


def read(name: str, *events: dict[str, Any] | str) -> Trace:
    trace = Trace()
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    read_events(KNOWN[name], "\n".join(lines), trace)
    return trace


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_followed_the_skill(name: str) -> None:
    trace = read(name, (STREAMS / f"{name}.jsonl").read_text(encoding="utf-8"))
    assert trace.text == "Done: greeted Ada."
    assert trace.done
    assert trace.error == ""
    assert trace.used("house-greeting")
    assert not trace.used("house")
    opened, shell = trace.tools
    assert "house-greeting" in opened.arguments
    assert json.loads(shell.arguments)["command"].startswith("printf '%s\\n' 'Ahoy Ada'")
    assert "Ahoy Ada" in shell.result
    assert [role for role, _ in trace.turns] == ["assistant", "tool"] * 2 + ["assistant"]


FAULTS: list[tuple[str, dict[str, Any], str]] = [
    (
        "claude",
        {"type": "result", "subtype": "success", "is_error": True, "result": "Failed to login"},
        "Failed to login",
    ),
    ("qwen", {"type": "result", "subtype": "error", "is_error": True}, "error"),
    ("codex", {"type": "turn.failed", "error": {"message": "no access"}}, "no access"),
    (
        "gemini",
        {"type": "result", "status": "error", "error": {"message": "quota"}},
        "quota",
    ),
    (
        "opencode",
        {"type": "error", "error": {"data": {"message": "no access", "statusCode": 401}}},
        "no access",
    ),
    ("copilot", {"type": "session.error", "data": {"message": "no access"}}, "no access"),
    (
        "pi",
        {
            "type": "message_end",
            "message": {
                "role": "assistant",
                "content": [],
                "stopReason": "error",
                "errorMessage": "no access",
            },
        },
        "no access",
    ),
]


@pytest.mark.parametrize(("name", "event", "words"), FAULTS, ids=[name for name, _, _ in FAULTS])
def test_a_fault_is_seen(name: str, event: dict[str, Any], words: str) -> None:
    assert read(name, event).error == words


@pytest.mark.parametrize("name", KNOWN)
def test_surprises_are_passed_over(name: str) -> None:
    """A new version may print anything; what is known is still read."""
    known = STREAMS / f"{name}.jsonl"
    whole = known.read_text(encoding="utf-8") if known.exists() else ""
    odd = ["", "not JSON", "[]", "{}", '{"type": "assistant"}', '{"type": "tool_result"}']
    odd += ['{"type": "item.completed"}', '{"type": "message", "role": "assistant"}', '{"type": 9}']
    trace = read(name, *odd, whole)
    assert trace.understood == (read(name, whole).understood)
    assert trace.text == ("Done: greeted Ada." if whole else "")


@pytest.mark.parametrize("name", KNOWN)
def test_a_launch_keeps_to_the_home_and_the_proxy(name: str, tmp_path: Path) -> None:
    job = Job("agent", "Do it.", "some-model", tmp_path / "work", tmp_path / "home", "http://p/t")
    launch = KNOWN[name].launch(job)
    everything = json.dumps([launch.argv, dict(launch.env), dict(launch.files)])
    assert launch.argv[0] == "agent"
    assert "Do it." in launch.argv
    assert "some-model" in everything
    assert "http://p/t" in everything
    assert not any(Path(file).is_absolute() for file in launch.files)
