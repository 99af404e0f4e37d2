"""Read the events that an agent prints: its messages, its tool calls and their tokens."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.agent import ToolRun
from pytest_skillopt.model.tokens import Tokens
from pytest_skillopt.untrusted import parsed, shorten

if TYPE_CHECKING:
    from pytest_skillopt.plugins.agents.known import Harness

    Event = dict[str, Any]
    """Something that an agent tells, as JSON."""

_SHOWN = 2_000
"""Maximum characters of a tool's result in the transcript: agents print whole files."""
_MOST_TURNS = 20_000
"""Maximum turns of a run: each takes many times the memory of what was printed."""
_EVENTS = re.compile(r"(?m)^[^\S\n]*\{.*")
"""Lines that may be JSON objects, whose texts may hold all line ends but this one."""


@dataclass(slots=True)
class Trace:
    """Record of one run, built from its events."""

    text: str = ""
    """Last message of the agent."""
    turns: list[tuple[str, str]] = field(default_factory=list)
    tools: list[ToolRun] = field(default_factory=list)
    error: str = ""
    """Reason for ending without an answer."""
    session: str = ""
    """Name of the session, with which it can be continued."""
    done: bool = False
    """Whether the agent finished its turn."""
    successful_calls: list[tuple[str, str]] = field(default_factory=list)
    """Name and arguments of each successful tool call."""
    open_calls: Event = field(default_factory=dict)
    """Calls without a result yet, by id."""
    tokens_by_call: dict[str, Tokens] = field(default_factory=dict)
    """Tokens of each model call, by its id."""
    total: Tokens = Tokens()
    """Tokens of all calls, if the events tell the sum."""
    _pieces: list[str] = field(default_factory=list)
    """Chunks of the message that the agent is writing."""

    @property
    def tokens(self) -> Tokens:
        """Tokens of the run, as its events tell them."""
        if any(self.total):
            return self.total
        return Tokens(*map(sum, zip(Tokens(), *self.tokens_by_call.values(), strict=True)))

    def say(self, text: Any, *, more: bool = False) -> None:
        """Record a message of the agent; with ``more`` a chunk of one."""
        if not more:
            self._end_message()
        self._pieces.append(as_text(text))
        if not more:
            self._end_message()

    def _end_message(self) -> None:
        message = "".join(self._pieces)
        self._pieces.clear()
        if message:
            self.text = message
            self.turns.append(("assistant", message))

    def calls(self, id: str, name: str, arguments: Any) -> None:
        """Record the call of a tool; ``returns`` follows with the same id."""
        self.open_calls[id] = (name, arguments)

    def returns(self, id: str, result: Any, *, failed: bool = False) -> None:
        """Record the result of a tool call."""
        name, arguments = self.open_calls.pop(id, ("?", {}))
        self.ran(name, arguments, result, failed=failed)

    def ran(self, name: str, arguments: Any, result: Any = "", *, failed: bool = False) -> None:
        """Record a tool call together with its result."""
        if isinstance(arguments, str):
            arguments = {"command": arguments}
        text = as_text(result)
        shown = json.dumps(arguments or {}, ensure_ascii=False)
        self._end_message()
        if not failed:
            self.successful_calls.append((str(name), shown))
        self.tools.append(ToolRun(str(name), shown, text))
        self.turns.append(("assistant", f"[calls {name}({shorten(shown, _SHOWN)})]"))
        self.turns.append(("tool", shorten(text, _SHOWN)))

    def has_loaded(self, skill: str) -> bool:
        """Return whether the agent loaded a skill, by a skill tool or by reading its file."""
        for name, arguments in self.successful_calls:
            if "skill" in name.lower() and f'"{skill}"' in arguments:
                return True
            if f"{skill}/SKILL.md" in arguments:
                return True
        return False

    def read_line(self, harness: Harness, line: str) -> Event:
        """Read a line of a harness's output; return its event, empty if it is none."""
        event: Event = {}
        if line.lstrip().startswith("{"):  # Parsing millions of short lines takes minutes.
            with contextlib.suppress(
                ValueError, LookupError, TypeError, AttributeError, RecursionError
            ):
                event = parsed(line)
                harness.read(event, self)
        return event

    def read_output(self, harness: Harness, printed: str) -> bool:
        """Read a harness's output; return whether any event was recognised."""
        for event in _EVENTS.finditer(printed):
            self.read_line(harness, event[0])
            if len(self.turns) > _MOST_TURNS:
                self.done = False
                self.error = f"more than {_MOST_TURNS} turns"
                break
        self._end_message()
        return bool(self.turns or self.done or self.error)


def as_text(content: Any) -> str:
    """Extract the text of a tool's result, however the harness nests it."""
    if isinstance(content, list):
        return "\n".join(as_text(item) for item in content)
    if isinstance(content, dict):
        return as_text(content.get("text") or content.get("content") or content.get("message"))
    return "" if content is None else str(content)


def _read_claude(event: Event, trace: Trace) -> None:
    kind = event["type"]
    trace.session = str(event.get("session_id") or trace.session)
    if kind == "assistant" and event["message"].get("model") != "<synthetic>":
        message = event["message"]
        trace.tokens_by_call[str(message.get("id"))] = Tokens.of(message.get("usage"))
    elif kind == "result":
        trace.total = Tokens.of(event.get("usage"))
    if event.get("parent_tool_use_id"):
        return  # event of a subagent
    if kind in ("assistant", "user"):
        for block in event["message"]["content"]:
            _read_block(block, kind, trace)
    if kind == "result":
        trace.done = True
        if event.get("is_error"):  # A failed login, too, comes as "subtype": "success".
            trace.error = as_text(event.get("result") or event.get("error") or event["subtype"])
        trace.text = as_text(event.get("result")) or trace.text


def _read_block(block: Event, kind: str, trace: Trace) -> None:
    if block["type"] == "text" and kind == "assistant":
        trace.say(block["text"])
    elif block["type"] == "tool_use":
        trace.calls(block["id"], block["name"], block["input"])
    elif block["type"] == "tool_result":
        failed = bool(block.get("is_error"))
        trace.returns(block["tool_use_id"], block.get("content"), failed=failed)


def _read_codex(event: Event, trace: Trace) -> None:
    """Read an event of Codex, which tells no calls: each answer and each tool counts as one."""
    kind = event["type"]
    item = event.get("item") or {}
    if kind == "turn.completed":
        trace.done = True
        trace.total = Tokens.of(event.get("usage"))
    if kind == "thread.started":
        trace.session = str(event["thread_id"])
    if kind == "turn.failed":
        trace.error = as_text(event["error"])
    if kind == "item.started" and item["type"] in ("command_execution", "mcp_tool_call"):
        trace.open_calls[str(item.get("id"))] = (item["type"], {})
    if kind == "item.completed":
        _read_item(item, trace)


def _read_item(item: Event, trace: Trace) -> None:
    what = item["type"]
    number = str(item.get("id"))
    trace.open_calls.pop(number, None)
    if what not in ("error", "reasoning", "todo_list"):
        trace.tokens_by_call[number] = Tokens()
    if what == "agent_message":
        trace.say(item["text"])
    elif what == "command_execution":
        failed = item.get("exit_code") != 0
        trace.ran("shell", item["command"], item.get("aggregated_output"), failed=failed)
    elif what == "file_change":
        trace.ran("edit", {"changes": item.get("changes")}, item.get("status"))
    elif what == "mcp_tool_call":
        trace.ran(f"{item['server']}.{item['tool']}", item.get("arguments"), item.get("result"))


def _read_gemini(event: Event, trace: Trace) -> None:
    kind = event["type"]
    if kind == "message" and event["role"] == "assistant":
        trace.say(event["content"], more=True)
    elif kind == "tool_use":
        trace.calls(event["tool_id"], event["tool_name"], event["parameters"])
    elif kind == "tool_result":
        failed = event.get("status") != "success"
        trace.returns(event["tool_id"], event.get("output"), failed=failed)
    elif kind == "result":
        trace.done = True
        trace.total = Tokens.of(event.get("stats"))
        trace.error = "" if event["status"] == "success" else as_text(event.get("error") or kind)


def _read_copilot(event: Event, trace: Trace) -> None:
    kind = event["type"]
    data = event.get("data") or {}
    trace.done = trace.done or kind == "result"
    if kind == "assistant.message":
        trace.say(data["content"])
    elif kind == "tool.execution_start":
        trace.calls(data["toolCallId"], data["toolName"], data["arguments"])
    elif kind == "tool.execution_complete":
        trace.returns(data["toolCallId"], data.get("result"), failed=not data.get("success"))
    elif kind == "session.error":
        trace.error = as_text(data) or kind


def _read_pi(event: Event, trace: Trace) -> None:
    kind = event["type"]
    trace.done = trace.done or kind == "agent_end"
    if kind == "message_end" and event["message"]["role"] == "assistant":
        message = event["message"]
        trace.tokens_by_call[str(len(trace.tokens_by_call))] = Tokens.of(message.get("usage"))
        trace.say("\n".join(b["text"] for b in message["content"] if b["type"] == "text"))
        failed = message.get("stopReason") == "error"
        trace.error = (as_text(message.get("errorMessage")) or "error") if failed else ""
    elif kind == "tool_execution_start":
        trace.calls(event["toolCallId"], event["toolName"], event["args"])
    elif kind == "tool_execution_end":
        trace.returns(event["toolCallId"], event.get("result"), failed=bool(event.get("isError")))


def _read_acp(event: Event, trace: Trace) -> None:
    """Read a message of the Agent Client Protocol."""
    if "method" not in event:
        result = event.get("result") or {}
        reason = result.get("stopReason")
        trace.session = str(result.get("sessionId") or trace.session)
        trace.done = reason in ("end_turn", "max_tokens")
        stopped = f"the agent stopped: {reason}" if reason and not trace.done else ""
        trace.error = as_text(event["error"]) if "error" in event else stopped
    elif event["method"] == "session/update":
        update = event["params"]["update"]
        if update["sessionUpdate"] == "agent_message_chunk":
            trace.say(update["content"].get("text") or "", more=True)
        elif update["sessionUpdate"] in ("tool_call", "tool_call_update"):
            call = trace.open_calls.setdefault(update["toolCallId"], {})
            # The first title is often the tool's name, a later one tells about the call.
            title = call.get("title") or update.get("title")
            call |= {name: value for name, value in update.items() if value} | {"title": title}
            if update.get("status") in ("completed", "failed"):
                del trace.open_calls[update["toolCallId"]]
                arguments = call.get("rawInput") or {"locations": call.get("locations")}
                result = call.get("content") or call.get("rawOutput")
                failed = update["status"] == "failed"
                trace.ran(_tool_name(call), arguments, result, failed=failed)


def _tool_name(call: Event) -> str:
    """Return the name of a tool, for which the protocol has no field of its own."""
    more = call.get("_meta")
    name = more.get("toolName") if isinstance(more, dict) else None
    return str(name or call["title"] or call.get("kind") or "?")


READERS = {
    "acp": _read_acp,
    "claude": _read_claude,
    "codex": _read_codex,
    "copilot": _read_copilot,
    "gemini": _read_gemini,
    "pi": _read_pi,
}
"""Readers of events, by the names that stand in ``known.toml``."""
