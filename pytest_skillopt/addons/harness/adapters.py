"""What a harness is, and those that are known: data, and a function that reads their events."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.model.agent import ToolRun
from pytest_skillopt.suite.rollouts import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SHOWN = 2_000
"""Characters of a tool's result that the transcript keeps: real agents print whole files."""
_BLANK = re.compile(r"\{(executable|python|prompt|model|workspace|home|url|key)\}")


@dataclass(frozen=True, slots=True)
class Harness:
    """A coding agent's command line. One of a project's own is named ``module:object``.

    In ``argv``, ``env`` and ``files`` stand ``{executable}``, ``{python}`` (this interpreter),
    ``{prompt}``, ``{model}``, ``{workspace}``, ``{home}`` (an empty folder, removed after the run),
    ``{url}`` (of the proxy, without ``/v1``) and ``{key}`` (worth nothing: the proxy has the real
    one).

    Args:
        argv: the command line; blanks part its words.
        read: told each JSON line of the output; may raise what an odd line makes it raise.
        package: what to install where it is missing, as a user would type it.
        executable: its command, where that is not the name; once it is found, the whole path.
        files: texts by path relative to the home.
        skills: folder of a project in which it finds skills.
        speaks: to a model: ``messages`` (Anthropic), ``chat``, ``responses`` or ``gemini``.
        explicit: a prompt that forces a skill, with ``{name}`` and ``{prompt}``.
        bundled: ``package/path`` of the executable in an installed Python package.
        unpacks: folder of the user's cache into which it unpacks itself at ``--version``.
        tested: the version that this was last run with.
    """

    name: str
    argv: str
    read: Callable[[dict[str, Any], Trace], None]
    package: str
    executable: str = ""
    version: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    skills: str = ".agents/skills"
    speaks: str = "chat"
    explicit: str = ""
    bundled: str = ""
    unpacks: str = ""
    tested: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def filled(self, text: str, values: Mapping[str, str]) -> str:
        """A text of ``argv``, ``env`` or ``files`` for one run."""
        return _BLANK.sub(lambda blank: values[blank[1]], text)


@dataclass(slots=True)
class Trace:
    """What the events of a run tell: the last thing the agent said, why it ended without an answer,
    whether its turn is over, each tool that did not fail, what is known of tools that run."""

    text: str = ""
    turns: list[tuple[str, str]] = field(default_factory=list)
    tools: list[ToolRun] = field(default_factory=list)
    error: str = ""
    done: bool = False
    opened: list[str] = field(default_factory=list)
    waiting: dict[str, Any] = field(default_factory=dict)
    _more: bool = False

    def say(self, text: str, *, more: bool = False) -> None:
        """The agent says something; with ``more`` a piece of a message."""
        if more and self._more and self.turns:
            text = self.turns.pop()[1] + text
        if text:
            self.text, self._more = text, more
            self.turns.append(("assistant", text))

    def calls(self, id: str, name: str, arguments: Any) -> None:
        """The agent calls a tool; ``returns`` follows under the same id."""
        self.waiting[id] = (name, arguments)

    def returns(self, id: str, result: Any, *, failed: bool = False) -> None:
        """The result of a tool that was called."""
        name, arguments = self.waiting.pop(id, ("?", {}))
        self.ran(name, arguments, result, failed=failed)

    def ran(self, name: str, arguments: Any, result: Any = "", *, failed: bool = False) -> None:
        """A tool was called and has returned."""
        if isinstance(arguments, str):
            arguments = {"command": arguments}
        text, shown = as_text(result), json.dumps(arguments or {}, ensure_ascii=False)
        self._more = False
        self.opened += [] if failed else [f"{name} {shown}"]
        self.tools.append(ToolRun(name, shown, text))
        self.turns.append(("assistant", f"[calls {name}({shorten(shown, _SHOWN)})]"))
        self.turns.append(("tool", shorten(text, _SHOWN)))

    def used(self, skill: str) -> bool:
        """Whether the agent asked for a skill, with a tool for it or by its file."""
        tool = re.compile(rf'(?i:\S*skill\S*) .*"{re.escape(skill)}"')
        return any(tool.match(call) or f"{skill}/SKILL.md" in call for call in self.opened)

    def read(self, harness: Harness, printed: str) -> bool:
        """Read what a harness has printed; whether any of it told something."""
        for line in printed.split("\n"):  # JSON has other line ends in its texts
            with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
                harness.read(json.loads(line), self)
        return bool(self.turns or self.done or self.error)


def as_text(content: Any) -> str:
    """The text in a tool's result, whatever the harness wraps it in."""
    if isinstance(content, list):
        return "\n".join(as_text(item) for item in content)
    if isinstance(content, dict):
        return as_text(content.get("text") or content.get("content") or content.get("message"))
    return "" if content is None else str(content)


def _read_claude(event: dict[str, Any], trace: Trace) -> None:
    """Claude Code, and Qwen Code whose events have the same form."""
    kind = event["type"]
    if event.get("parent_tool_use_id"):
        return  # of an agent below the agent
    for block in event["message"]["content"] if kind in ("assistant", "user") else ():
        if block["type"] == "text" and kind == "assistant":
            trace.say(block["text"])
        elif block["type"] == "tool_use":
            trace.calls(block["id"], block["name"], block["input"])
        elif block["type"] == "tool_result":
            failed = bool(block.get("is_error"))
            trace.returns(block["tool_use_id"], block.get("content"), failed=failed)
    if kind == "result":
        trace.done = True
        if event.get("is_error"):  # A failed login, too, comes as "subtype": "success".
            trace.error = as_text(event.get("result") or event.get("error") or event["subtype"])
        trace.text = event.get("result") or trace.text


def _read_codex(event: dict[str, Any], trace: Trace) -> None:
    kind, item = event["type"], event.get("item") or {}
    trace.done = trace.done or kind == "turn.completed"
    if kind == "turn.failed":
        trace.error = event["error"]["message"]
    what = item["type"] if kind == "item.completed" else ""
    if what == "agent_message":
        trace.say(item["text"])
    elif what == "command_execution":
        failed = item.get("exit_code") != 0
        trace.ran("shell", item["command"], item.get("aggregated_output"), failed=failed)
    elif what == "file_change":
        trace.ran("edit", {"changes": item.get("changes")}, item.get("status"))
    elif what == "mcp_tool_call":
        trace.ran(f"{item['server']}.{item['tool']}", item.get("arguments"), item.get("result"))


def _read_gemini(event: dict[str, Any], trace: Trace) -> None:
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
        trace.error = "" if event["status"] == "success" else as_text(event.get("error") or kind)


def _read_opencode(event: dict[str, Any], trace: Trace) -> None:
    kind, part = event["type"], event.get("part") or {}
    if kind == "text":
        trace.say(part["text"])
    elif kind == "tool_use":
        state = part["state"]
        result, failed = state.get("output") or state.get("error"), state["status"] != "completed"
        trace.ran(part["tool"], state.get("input"), result, failed=failed)
    elif kind == "step_finish":
        trace.done = part["reason"] != "tool-calls"
    elif kind == "error":
        error = event.get("error") or {}
        trace.error = as_text(error.get("data") or error.get("name") or "error")


def _read_copilot(event: dict[str, Any], trace: Trace) -> None:
    kind, data = event["type"], event.get("data") or {}
    trace.done = trace.done or kind == "result"
    if kind == "assistant.message":
        trace.say(data["content"])
    elif kind == "tool.execution_start":
        trace.calls(data["toolCallId"], data["toolName"], data["arguments"])
    elif kind == "tool.execution_complete":
        trace.returns(data["toolCallId"], data.get("result"), failed=not data.get("success"))
    elif kind == "session.error":
        trace.error = data.get("message") or kind


def _read_pi(event: dict[str, Any], trace: Trace) -> None:
    kind = event["type"]
    trace.done = trace.done or kind == "agent_end"
    if kind == "message_end" and event["message"]["role"] == "assistant":
        message = event["message"]
        trace.say("\n".join(b["text"] for b in message["content"] if b["type"] == "text"))
        failed = message.get("stopReason") == "error"
        trace.error = (message.get("errorMessage") or "error") if failed else ""
    elif kind == "tool_execution_start":
        trace.calls(event["toolCallId"], event["toolName"], event["args"])
    elif kind == "tool_execution_end":
        trace.returns(event["toolCallId"], event.get("result"), failed=bool(event.get("isError")))


def _read_acp(event: dict[str, Any], trace: Trace) -> None:
    """What an agent tells in the Agent Client Protocol."""
    if "method" not in event:
        reason = (event.get("result") or {}).get("stopReason")
        trace.done = reason in ("end_turn", "max_tokens")
        stopped = f"the agent stopped: {reason}" if reason and not trace.done else ""
        trace.error = event["error"]["message"] if "error" in event else stopped
    elif event["method"] == "session/update":
        update = event["params"]["update"]
        if update["sessionUpdate"] == "agent_message_chunk":
            trace.say(update["content"].get("text") or "", more=True)
        elif update["sessionUpdate"] in ("tool_call", "tool_call_update"):
            call = trace.waiting.setdefault(update["toolCallId"], {})
            call |= {name: value for name, value in update.items() if value}
            if update.get("status") in ("completed", "failed"):
                arguments = call.get("rawInput") or {"locations": call.get("locations")}
                result = call.get("content") or call.get("rawOutput")
                title = str(call.get("name") or call.get("title") or call.get("kind") or "?")
                trace.ran(title, arguments, result, failed=update["status"] == "failed")


def _known() -> dict[str, Harness]:
    tables = tomllib.loads(Path(__file__).with_name("known.toml").read_text(encoding="utf-8"))
    readers = {name: globals()[f"_read_{table.pop('read')}"] for name, table in tables.items()}
    return {name: Harness(name, read=readers[name], **table) for name, table in tables.items()}


KNOWN = _known()
_ACP = KNOWN.pop("acp")
NAMES = f"{', '.join(KNOWN)}, acp:COMMAND or module:object"


def find_harness(name: str) -> Harness:
    """The harness of a name; UsageError, which says what can be named, where there is none."""
    module, _, rest = name.partition(":")
    if name in KNOWN:
        return KNOWN[name]
    if not rest.strip():
        raise pytest.UsageError(f"skillopt_harness: {name!r} is none of {NAMES}")
    if module == "acp":
        program, _, arguments = rest.strip().partition(" ")
        script = Path(__file__).with_name("acp.py").read_text(encoding="utf-8")
        return replace(
            _ACP,
            name=name,
            argv=f"{_ACP.argv} {arguments}",
            executable=program,
            package=f"whatever brings the command {program!r}",
            files={"acp.py": script},
        )
    try:
        found = getattr(import_module(module), rest)
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(f"skillopt_harness: {name!r} cannot be loaded: {error}") from None
    if not isinstance(found, Harness):
        raise pytest.UsageError(f"skillopt_harness: {name!r} is no Harness")
    return found
