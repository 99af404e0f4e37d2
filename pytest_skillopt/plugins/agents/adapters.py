"""Supported harnesses: the data to start each, and a function to read its events."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_skillopt.model.agent import ToolRun
from pytest_skillopt.model.prompt_cache import PromptCache
from pytest_skillopt.rollouts.rollout import shorten
from pytest_skillopt.untrusted import parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_skillopt.model.config import ModelConfig
    from pytest_skillopt.model.types import Usage

_SHOWN = 2_000
"""Maximum characters of a tool's result in the transcript: agents print whole files."""
_MOST_TURNS = 20_000
"""Maximum turns of a run: each takes many times the memory of what was printed."""
_EVENTS = re.compile(r"(?m)^[^\S\n]*\{.*")
"""Lines that may be JSON objects, whose texts may hold all line ends but this one."""
_VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
_STARTS = 300.0
"""Seconds for a program to tell its version: some need a minute on a busy machine."""
_BLANK = re.compile(r"\{(executable|python|prompt|model|workspace|home|url|key|session)\}")


class Tokens(NamedTuple):
    """Tokens in and out, and the part of the former that a prompt cache has read or kept."""

    asked: int = 0
    said: int = 0
    read: int = 0
    written: int = 0


class Ended(NamedTuple):
    """End of a run.

    ``status`` is the exit status, or the negative number of the signal that ended it. ``why`` is
    ``exit`` (also on request), ``time``, ``printed``, ``disk``, ``guard`` (its guard was killed) or
    ``start`` (it never ran).
    """

    status: int
    why: str
    seconds: float
    out: str = ""
    err: str = ""


@dataclass(frozen=True, slots=True)
class Harness:
    """Command line of a coding agent. A project's own harness is named ``module:object``.

    ``argv``, ``env`` and ``files`` are templates with the variables ``{executable}``, ``{python}``
    (this interpreter), ``{prompt}``, ``{model}``, ``{workspace}``, ``{home}`` (an empty folder,
    removed after the run), ``{url}`` (the proxy's, without ``/v1``), ``{key}`` (a dummy: only the
    proxy has the real key) and ``{session}`` (the one to continue; empty for a new one).

    Args:
        name: value of ``skillopt_harness``.
        argv: command line, split at blanks.
        read: called with each JSON line of the output; its exceptions are ignored.
        package: command that installs the harness, for the error if it is missing.
        executable: command, if it differs from ``name``; its absolute path once it is found.
        version: version of the executable, once it is found.
        env: environment variables.
        files: contents by path relative to the home.
        skills: folder in a project where the harness looks for skills.
        memory: documents of a project's folder that it reads by itself, the usual one first.
        speaks: model API: ``messages`` (Anthropic), ``chat``, ``responses`` or ``gemini``.
        explicit: prompt that forces a skill, with ``{name}`` and ``{prompt}``; empty: impossible.
        bundled: ``package/path`` of the executable in an installed Python package.
        folder: folder of the user that it may read and write in bubblewrap.
        unpacks: folder in the user's cache into which it unpacks itself at ``--version``.
        tested: latest version that was tested.
        once: part of ``argv`` that keeps no session, which a conversation of several turns omits.
        resume: what stands in its place in a further turn, with ``{session}``; empty: impossible,
            unless ``argv`` itself has ``{session}``.
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
    memory: Sequence[str] = ()
    speaks: str = "chat"
    explicit: str = ""
    bundled: str = ""
    folder: str = ""
    unpacks: str = ""
    tested: str = ""
    once: str = ""
    resume: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def keeps_sessions(self) -> bool:
        """Whether a further run can continue the session of another."""
        return bool(self.resume) or "{session}" in self.argv

    def in_session(self, session: str) -> Harness:
        """Return the harness for a turn of a session, the first turn if its name is empty."""
        if not self.once:
            return self
        return replace(self, argv=self.argv.replace(self.once, self.resume if session else ""))

    def filled(self, text: str, values: Mapping[str, str]) -> str:
        """Fill in a template of ``argv``, ``env`` or ``files`` for one run."""
        return _BLANK.sub(lambda blank: values[blank[1]], text)


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
    opened: list[tuple[str, str]] = field(default_factory=list)
    """Name and arguments of each successful tool call."""
    waiting: dict[str, Any] = field(default_factory=dict)
    """Calls without a result yet, by id."""
    spent: dict[str, Tokens] = field(default_factory=dict)
    """Tokens of each model call, by id."""
    total: Tokens | None = None
    """Tokens of all calls, if the events tell the sum."""
    _pieces: list[str] = field(default_factory=list)
    """Chunks of the message that the agent is writing."""

    @property
    def tokens(self) -> Tokens | None:
        """Tokens of the run; None if its events tell none."""
        each = [self.total] if self.total else list(self.spent.values())
        found = Tokens(*map(sum, zip(*each, strict=True))) if each else Tokens()
        return found if any(found) else None

    def usage(self, config: ModelConfig, asked: int, said: int) -> Usage:
        """Return the usage that the events tell, else an estimate by these tokens in and out."""
        if told := self.tokens:
            return config.usage(told.asked, told.said, PromptCache(told.read, told.written))
        return config.usage(asked, said, estimated=True)

    def say(self, text: Any, *, more: bool = False) -> None:
        """Record a message of the agent; with ``more`` a chunk of one."""
        if not more:
            self._end_message()
        if said := as_text(text):
            self._pieces.append(said)
        if not more:
            self._end_message()

    def _end_message(self) -> None:
        if self._pieces:
            self.text = "".join(self._pieces)
            self._pieces.clear()
            self.turns.append(("assistant", self.text))

    def calls(self, id: str, name: str, arguments: Any) -> None:
        """Record the call of a tool; ``returns`` follows with the same id."""
        self.waiting[id] = (name, arguments)

    def returns(self, id: str, result: Any, *, failed: bool = False) -> None:
        """Record the result of a tool call."""
        name, arguments = self.waiting.pop(id, ("?", {}))
        self.ran(name, arguments, result, failed=failed)

    def ran(self, name: str, arguments: Any, result: Any = "", *, failed: bool = False) -> None:
        """Record a tool call together with its result."""
        if isinstance(arguments, str):
            arguments = {"command": arguments}
        text, shown = as_text(result), json.dumps(arguments or {}, ensure_ascii=False)
        self._end_message()
        if not failed:
            self.opened.append((str(name), shown))
        self.tools.append(ToolRun(str(name), shown, text))
        self.turns.append(("assistant", f"[calls {name}({shorten(shown, _SHOWN)})]"))
        self.turns.append(("tool", shorten(text, _SHOWN)))

    def used(self, skill: str) -> bool:
        """Return whether the agent loaded a skill, by a skill tool or by reading its file."""
        for name, arguments in self.opened:
            if "skill" in name.lower() and f'"{skill}"' in arguments:
                return True
            if f"{skill}/SKILL.md" in arguments:
                return True
        return False

    def take(self, harness: Harness, line: str) -> dict[str, Any]:
        """Read a line of a harness's output; return its event, empty if it is none."""
        event: dict[str, Any] = {}
        if line.lstrip().startswith("{"):  # Parsing millions of short lines takes minutes.
            with contextlib.suppress(
                ValueError, LookupError, TypeError, AttributeError, RecursionError
            ):
                event = parsed(line)
                harness.read(event, self)
        return event

    def read(self, harness: Harness, printed: str) -> bool:
        """Read a harness's output; return whether any event was recognised."""
        for event in _EVENTS.finditer(printed):
            self.take(harness, event[0])
            if len(self.turns) > _MOST_TURNS:
                self.done, self.error = False, f"more than {_MOST_TURNS} turns"
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


def add_up(usage: Any, *names: str) -> int:
    """Add up counts of a usage record; a malformed one must not hide the rest of the event."""
    found = [usage.get(name) for name in names] if isinstance(usage, dict) else []
    return sum(count for count in found if isinstance(count, int) and count > 0)


def _claude_tokens(usage: Any) -> Tokens:
    """Count tokens; cached ones are counted apart."""
    read = add_up(usage, "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return Tokens(read, add_up(usage, "output_tokens"), *PromptCache.of(usage))


def _read_claude(event: dict[str, Any], trace: Trace) -> None:
    kind = event["type"]
    trace.session = str(event.get("session_id") or trace.session)
    if kind == "assistant" and event["message"].get("model") != "<synthetic>":
        message = event["message"]
        trace.spent[str(message.get("id"))] = _claude_tokens(message.get("usage"))
    elif kind == "result":
        trace.total = _claude_tokens(event.get("usage"))
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


def _read_block(block: dict[str, Any], kind: str, trace: Trace) -> None:
    if block["type"] == "text" and kind == "assistant":
        trace.say(block["text"])
    elif block["type"] == "tool_use":
        trace.calls(block["id"], block["name"], block["input"])
    elif block["type"] == "tool_result":
        failed = bool(block.get("is_error"))
        trace.returns(block["tool_use_id"], block.get("content"), failed=failed)


def _read_codex(event: dict[str, Any], trace: Trace) -> None:
    """Read an event of Codex, which tells no calls: each answer and each tool counts as one."""
    kind, item = event["type"], event.get("item") or {}
    if kind == "turn.completed":
        trace.done, usage = True, event.get("usage")
        asked, said = add_up(usage, "input_tokens"), add_up(usage, "output_tokens")
        trace.total = Tokens(asked, said, *PromptCache.of(usage))
    if kind == "thread.started":
        trace.session = str(event["thread_id"])
    if kind == "turn.failed":
        trace.error = as_text(event["error"])
    if kind == "item.started" and item["type"] in ("command_execution", "mcp_tool_call"):
        trace.waiting[str(item.get("id"))] = (item["type"], {})
    if kind == "item.completed":
        _read_item(item, trace)


def _read_item(item: dict[str, Any], trace: Trace) -> None:
    what, number = item["type"], str(item.get("id"))
    trace.waiting.pop(number, None)
    if what not in ("error", "reasoning", "todo_list"):
        trace.spent[number] = Tokens()
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
        trace.done, stats = True, event.get("stats")
        asked, said = add_up(stats, "input_tokens"), add_up(stats, "output_tokens")
        trace.total = Tokens(asked, said, *PromptCache.of(stats))
        trace.error = "" if event["status"] == "success" else as_text(event.get("error") or kind)


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
        trace.error = as_text(data) or kind


def _read_pi(event: dict[str, Any], trace: Trace) -> None:
    kind = event["type"]
    trace.done = trace.done or kind == "agent_end"
    if kind == "message_end" and event["message"]["role"] == "assistant":
        message, usage = event["message"], event["message"].get("usage")
        asked, said = add_up(usage, "input", "cacheRead", "cacheWrite"), add_up(usage, "output")
        trace.spent[str(len(trace.spent))] = Tokens(asked, said, *PromptCache.of(usage))
        trace.say("\n".join(b["text"] for b in message["content"] if b["type"] == "text"))
        failed = message.get("stopReason") == "error"
        trace.error = (as_text(message.get("errorMessage")) or "error") if failed else ""
    elif kind == "tool_execution_start":
        trace.calls(event["toolCallId"], event["toolName"], event["args"])
    elif kind == "tool_execution_end":
        trace.returns(event["toolCallId"], event.get("result"), failed=bool(event.get("isError")))


def _read_acp(event: dict[str, Any], trace: Trace) -> None:
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
            call = trace.waiting.setdefault(update["toolCallId"], {})
            # The first title is often the tool's name, a later one tells about the call.
            title = call.get("title") or update.get("title")
            call |= {name: value for name, value in update.items() if value} | {"title": title}
            if update.get("status") in ("completed", "failed"):
                del trace.waiting[update["toolCallId"]]
                arguments = call.get("rawInput") or {"locations": call.get("locations")}
                result = call.get("content") or call.get("rawOutput")
                failed = update["status"] == "failed"
                trace.ran(_tool_name(call), arguments, result, failed=failed)


def _tool_name(call: dict[str, Any]) -> str:
    """Return the name of a tool, for which the protocol has no field of its own."""
    more = call.get("_meta")
    name = more.get("toolName") if isinstance(more, dict) else None
    return str(name or call["title"] or call.get("kind") or "?")


_READERS = {
    "acp": _read_acp,
    "claude": _read_claude,
    "codex": _read_codex,
    "copilot": _read_copilot,
    "gemini": _read_gemini,
    "pi": _read_pi,
}


def _known() -> dict[str, Harness]:
    tables = tomllib.loads(Path(__file__).with_name("known.toml").read_text(encoding="utf-8"))
    found = {}
    for name, table in tables.items():
        read = _READERS[table.pop("read")]
        harness = Harness(name, read=read, **table)
        found[name] = _over_acp(harness) if read is _read_acp else harness
    return found


def _over_acp(harness: Harness) -> Harness:
    """Have our client run the command line of a harness, which speaks ACP."""
    script = Path(__file__).with_name("acp.py").read_text(encoding="utf-8")
    argv = f"{{python}} -I -S {{home}}/acp.py {{session}} {{prompt}} {{workspace}} {harness.argv}"
    return replace(harness, argv=argv, files={**harness.files, "acp.py": script})


KNOWN = _known()
_ACP = KNOWN.pop("acp")
MEMORY = tuple(dict.fromkeys(name for known in KNOWN.values() for name in known.memory))
"""Names of documents that some harness reads by itself, such as AGENTS.md."""
NAMES = f"{', '.join(KNOWN)}, acp:COMMAND or module:object"


def find_harness(name: str) -> Harness:
    """Find a harness by name; UsageError, listing the possible names, if there is none."""
    module, _, rest = name.partition(":")
    if name in KNOWN:
        return KNOWN[name]
    if not rest.strip():
        raise pytest.UsageError(f"skillopt_harness: {name!r} is not one of {NAMES}")
    if module == "acp":
        program, _, arguments = rest.strip().partition(" ")
        return replace(
            _ACP,
            name=name,
            argv=f"{_ACP.argv} {arguments}",
            executable=program,
            package=f"the package that provides the command {program!r}",
        )
    try:
        found = getattr(import_module(module), rest)
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(f"skillopt_harness: {name!r} cannot be loaded: {error}") from None
    if not isinstance(found, Harness):
        raise pytest.UsageError(f"skillopt_harness: {name!r} is not a Harness")
    return found


def bundled_path(place: str) -> str:
    """Find a file in an installed package by ``package/path``; empty if it is missing."""
    package, _, rest = place.partition("/")
    spec = importlib.util.find_spec(package) if package else None
    paths = [Path(folder) / rest for folder in (spec and spec.submodule_search_locations) or ()]
    return next((str(path) for path in paths if path.is_file()), "")


def missing_program(name: str, harness: Harness) -> str:
    """Say that a harness is not installed, and what installs it."""
    return (
        f"{name} needs the command {harness.executable or harness.name!r}, which is not "
        f"installed; install it with: {harness.package}"
    )


@functools.cache
def installed(name: str, own: bool = False) -> Harness:
    """Find a harness with the path and version of its executable.

    With ``own`` the user's program comes before the one in a Python package.

    Raises:
        pytest.UsageError: it is unknown, not installed, or prints no version.
    """
    harness = find_harness(name)
    command = harness.executable or harness.name
    found, ours = shutil.which(command) or "", bundled_path(harness.bundled)
    path = (found or ours) if own else (ours or found)
    if not path:
        raise pytest.UsageError(f"skillopt_harness: {missing_program(name, harness)}")
    # Its fixed variables keep it from updating or starting itself again.
    env = os.environ | {name: text for name, text in harness.env.items() if "{" not in text}
    ask = functools.partial(subprocess.run, stdin=subprocess.DEVNULL, capture_output=True, env=env)
    try:
        done = ask([path, "--version"], text=True, timeout=_STARTS)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise pytest.UsageError(f"{path} cannot be run: {error}") from None
    said = done.stdout + done.stderr
    version = _VERSION.search(said)
    if version is None and not name.startswith("acp:"):
        words = said.strip()[:200] or "nothing"
        raise pytest.UsageError(f"{path} --version prints no version, but: {words}")
    return replace(harness, executable=path, version=version[0] if version else "0")


def memory_name(harness: Harness, path: str) -> str:
    """Return the part of a path that is a document's name, known or a harness's own, or ""."""
    names = (*MEMORY, *harness.memory)
    return next((name for name in names if f"/{path}".endswith(f"/{name}")), "")


def placed(harness: Harness, path: str) -> tuple[str, list[str]]:
    """Return where a harness reads a document of the project, and all that it takes the place of.

    Only that document is in its folder then: most harnesses read several, or another one instead.
    Paths are relative to the project, with ``/``.
    """
    name = memory_name(harness, path)
    if not name:
        return path, [path]
    folder = path.removesuffix(name)
    read = name if name in harness.memory else next(iter(harness.memory), name)
    return folder + read, [folder + other for other in dict.fromkeys([*MEMORY, *harness.memory])]
