"""The readings of events that the agents printed on loopback; see ``trim.py`` there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tables import each_row

from pytest_skillopt.plugins.agents.events import Trace
from pytest_skillopt.plugins.agents.known import _ACP, KNOWN, find_harness

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAMS = Path(__file__).parents[2] / "data" / "harness_streams"
NAMES = ["copilot", "gemini", "pi"]


def read(name: str, *events: dict[str, Any] | str) -> tuple[Trace, bool]:
    """The trace, and whether an event told something."""
    trace = Trace()
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return trace, trace.read_output(KNOWN[name], "\n".join(lines))


@each_row("name", NAMES)
def test_a_run_that_followed_the_skill(name: str) -> None:
    trace, _ = read(name, (STREAMS / f"{name}.jsonl").read_text(encoding="utf-8"))
    assert trace.text == "Done: greeted Ada."
    assert trace.done
    assert trace.error == ""
    assert trace.has_loaded("house-greeting")
    assert not trace.has_loaded("house")
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
    ("claude", {"type": "result", "subtype": "error", "is_error": True}, "error"),
    ("codex", {"type": "turn.failed", "error": {"message": "no access"}}, "no access"),
    (
        "gemini",
        {"type": "result", "status": "error", "error": {"message": "quota"}},
        "quota",
    ),
    ("opencode", {"id": 3, "error": {"code": -32603, "message": "no access"}}, "no access"),
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


@each_row(("name", "event", "words"), FAULTS)
def test_a_fault_is_seen(name: str, event: dict[str, Any], words: str) -> None:
    assert read(name, event)[0].error == words


@each_row("name", KNOWN)
def test_surprises_are_passed_over(name: str) -> None:
    """A new version may print anything; what is known is still read."""
    known = STREAMS / f"{name}.jsonl"
    whole = known.read_text(encoding="utf-8") if known.exists() else ""
    odd = ["", "not JSON", "[]", "{}", '{"type": "assistant"}', '{"type": "tool_result"}']
    odd += ['{"type": "item.completed"}', '{"type": "message", "role": "assistant"}', '{"type": 9}']
    trace, told = read(name, *odd, whole)
    assert told is bool(whole)
    assert trace.text == ("Done: greeted Ada." if whole else "")


@each_row("name", KNOWN)
def test_all_that_is_filled_in_is_known(name: str) -> None:
    harness = KNOWN[name]
    blanks = [
        "executable",
        "python",
        "prompt",
        "model",
        "workspace",
        "home",
        "url",
        "key",
        "session",
    ]
    values = {blank: f"<{blank}>" for blank in blanks}
    texts = [harness.argv, *harness.env.values(), *harness.files.values()]
    filled = " ".join(harness.fill(text, values) for text in texts)
    assert {"<executable>", "<prompt>"} <= set(harness.fill(harness.argv, values).split())
    assert "<model>" in filled
    assert "<url>" in filled
    assert "{model}" not in filled
    assert not any(Path(file).is_absolute() for file in harness.files)


def test_what_is_filled_in_is_not_filled_in_again() -> None:
    values = {"prompt": "What is {key}?", "key": "secret"}
    assert KNOWN["codex"].fill("{prompt}", values) == "What is {key}?"


@each_row("end", ["\u2028", "\u2029", "\u0085"])
def test_a_line_ends_only_where_json_lines_end(end: str) -> None:
    """Some agents print these characters as they are."""
    item = {"type": "agent_message", "text": f"one{end}two"}
    event = json.dumps({"type": "item.completed", "item": item}, ensure_ascii=False)
    assert end in event
    assert read("codex", event)[0].text == f"one{end}two"


CLAUDE = {"input_tokens": 7, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1}
TOLD: list[tuple[str, list[dict[str, Any]], tuple[int, int], int]] = [
    (
        "claude",  # cut off before its end: each call tells its own
        [
            {"type": "assistant", "message": {"id": n, "content": [], "usage": usage}}
            for n, usage in [
                ("a", CLAUDE | {"output_tokens": 2}),
                ("a", CLAUDE | {"output_tokens": 3}),
                ("b", CLAUDE | {"output_tokens": 4}),
            ]
        ],
        (20, 7),
        2,
    ),
    ("claude", [{"type": "result", "usage": CLAUDE | {"output_tokens": 5}}], (10, 5), 0),
    (
        "codex",
        [
            {"type": "item.completed", "item": {"id": "1", "type": "reasoning"}},
            {"type": "item.completed", "item": {"id": "2", "type": "agent_message", "text": "x"}},
            {
                "type": "turn.completed",
                "usage": {"input_tokens": 10, "cached_input_tokens": 4, "output_tokens": 5},
            },
        ],
        (10, 5),
        1,
    ),
    (
        "gemini",
        [
            {
                "type": "result",
                "status": "success",
                "stats": {"input_tokens": 10, "output_tokens": 5, "cached": 4},
            }
        ],
        (10, 5),
        0,
    ),
    (
        "pi",
        [
            {
                "type": "message_end",
                "message": {
                    "role": "assistant",
                    "content": [],
                    "usage": {"input": 4, "output": 3, "cacheRead": 1, "cacheWrite": 0},
                },
            }
        ]
        * 2,
        (10, 6),
        2,
    ),
]


@each_row(("name", "events", "tokens", "calls"), TOLD)
def test_tokens_and_calls_are_told(
    name: str, events: list[dict[str, Any]], tokens: tuple[int, int], calls: int
) -> None:
    trace, _ = read(name, *events)
    assert (trace.tokens[:2], len(trace.tokens_by_call)) == (tokens, calls)


def test_a_line_that_is_nested_too_deeply_is_passed_over() -> None:
    """It ended in an error of the test, hence as a wrong answer."""
    event = {"type": "result", "result": "Hello."}
    trace, _ = read("claude", "[" * 200_000, json.dumps({"a": 1})[:-1] + ', "b": ' * 9, event)
    assert (trace.text, trace.done) == ("Hello.", True)


@each_row("usage", [None, [], "many", {"input_tokens": "7"}, {"input_tokens": -7}])
def test_malformed_counts_hide_nothing_else(usage: Any) -> None:
    block = [{"type": "text", "text": "Hello."}]
    message = {"id": "a", "content": block, "usage": usage}
    trace, _ = read("claude", {"type": "assistant", "message": message})
    assert (trace.text, any(trace.tokens)) == ("Hello.", False)


ODD: list[Any] = [None, 5, -1, True, {}, [], "\ud800", 1e999, [[]], {"a": 1}, 10**30]


def changed(value: Any, new: Any) -> Iterator[Any]:
    """Yield copies of a JSON value in each of which one part is another value."""
    yield new
    if isinstance(value, dict):
        yield from ({**value, name: odd} for name in value for odd in changed(value[name], new))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from ([*value[:number], odd, *value[number + 1 :]] for odd in changed(part, new))


@each_row("name", NAMES)
def test_events_of_odd_types_are_no_more_than_words(name: str) -> None:
    lines = (STREAMS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    of_each_type = {str(event.get("type")): n for n, event in enumerate(events)}
    for number in of_each_type.values():
        event = {k: v for k, v in events[number].items() if k not in ("tools", "slash_commands")}
        for odd in (one for new in ODD for one in changed(event, new)):
            trace, _ = read(name, *events[:number], odd, *events[number + 1 :])
            said = [trace.text, trace.error, *(text for _, text in trace.turns)]
            said += [part for run in trace.tools for part in (run.name, run.arguments, run.result)]
            assert [text for text in said if not isinstance(text, str)] == []
            assert not trace.has_loaded("no-such-skill")
            assert all(count >= 0 for count in trace.tokens)


def acp(**update: Any) -> str:
    return json.dumps({"method": "session/update", "params": {"update": update}})


USES: dict[str, list[dict[str, Any]]] = {
    "opencode": [
        {"title": "skill", "status": "pending", "rawInput": {}},
        {"title": "skill", "status": "in_progress", "rawInput": {"name": "house-greeting"}},
        {"title": "Loaded skill: house-greeting", "status": "completed"},
    ],
    "qwen": [
        {
            "title": 'Skill: Use skill: "house-greeting"',
            "rawInput": {"skill": "house-greeting"},
            "_meta": {"toolName": "skill"},
        },
        {"status": "completed", "_meta": {"toolName": "skill"}},
    ],
    "acp:goose acp": [
        {
            "title": "Using skill: house-greeting",
            "rawInput": {"skill": "house-greeting"},
            "status": "pending",
        },
        {"status": "completed", "_meta": ["odd"]},
    ],
}


@each_row("name", USES)
def test_a_tool_has_the_name_that_an_agent_tells(name: str) -> None:
    """The protocol has no field for it: OpenCode gives it as the first title, Qwen Code beside."""
    first, *later = USES[name]
    lines = [acp(sessionUpdate="tool_call", toolCallId="1", **first)]
    lines += [acp(sessionUpdate="tool_call_update", toolCallId="1", **event) for event in later]
    trace = Trace()
    trace.read_output(find_harness(name), "\n".join(lines))
    (run,) = trace.tools
    assert run.name == ("skill" if name in KNOWN else "Using skill: house-greeting")
    assert trace.has_loaded("house-greeting")
    assert not trace.has_loaded("house")


def test_many_chunks_of_a_message_take_linear_time() -> None:
    """Each was copied for each that followed: hours for what an agent may print."""
    chunk = acp(sessionUpdate="agent_message_chunk", content={"text": "word " * 50})
    trace = Trace()
    assert trace.read_output(_ACP, "\n".join([chunk] * 60_000))
    assert trace.turns == [("assistant", trace.text)]
    assert trace.text == "word " * 50 * 60_000


def test_a_call_that_is_completed_again_and_again_is_kept_once() -> None:
    """With its arguments: they would fill the memory."""
    call = acp(sessionUpdate="tool_call", toolCallId="1", title="t", rawInput={"a": "x" * 100_000})
    again = acp(sessionUpdate="tool_call_update", toolCallId="1", status="completed")
    trace = Trace()
    trace.read_output(_ACP, "\n".join([call, *[again] * 50]))
    assert sum(len(run.arguments) > 100_000 for run in trace.tools) == 1
