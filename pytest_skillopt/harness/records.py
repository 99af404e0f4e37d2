"""What a harness is: a record and two functions, how it is started and how its events are read."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pytest_skillopt.model.agent import ToolRun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Protocol = Literal["messages", "chat", "responses", "gemini"]
"""How a model is spoken to: Anthropic Messages, Chat Completions, Responses, generateContent."""

_SHOWN = 2_000
"""Characters of a tool's result that the transcript keeps: real agents print whole files."""


@dataclass(frozen=True, slots=True)
class Job:
    """One headless run, as ``Harness.launch`` is told of it."""

    executable: str
    prompt: str
    model: str
    workspace: Path
    home: Path
    """Empty folder in which the harness keeps its state; removed when the run has ended."""
    base_url: str
    """Of the proxy, without ``/v1``, with a path that belongs to this run alone."""
    key: str = "skillopt"
    """Worth nothing: the proxy holds the real one."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a run is started."""

    argv: list[str]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts by path relative to the home."""


@dataclass(slots=True)
class Trace:
    """What the events of a run tell. Filled by ``Harness.read``, one event after another."""

    text: str = ""
    """The last thing the agent said."""
    turns: list[tuple[str, str]] = field(default_factory=list)
    tools: list[ToolRun] = field(default_factory=list)
    failed_tools: set[int] = field(default_factory=set)
    """Indexes into ``tools``."""
    error: str = ""
    """Why the agent ended without an answer."""
    done: bool = False
    """The harness said that the agent's turn is over."""
    understood: int = 0
    """Events that told something."""
    _pieces: str = ""
    _waiting: dict[str, tuple[str, Any]] = field(default_factory=dict)

    def say(self, text: str) -> None:
        """A whole message of the agent."""
        self.flush()
        if text:
            self.text = text
            self.turns.append(("assistant", text))

    def piece(self, text: str) -> None:
        """A part of a message that comes in pieces."""
        self._pieces += text

    def flush(self) -> None:
        """The message that came in pieces is complete."""
        text, self._pieces = self._pieces, ""
        if text.strip():
            self.text = text
            self.turns.append(("assistant", text))

    def calls(self, id: str, name: str, arguments: Any) -> None:
        """The agent calls a tool; ``returns`` follows under the same id."""
        self.flush()
        self._waiting[id] = (name, arguments)

    def returns(self, id: str, result: Any, *, failed: bool = False) -> None:
        """The result of a tool that was called."""
        name, arguments = self._waiting.pop(id, ("?", {}))
        self.ran(name, arguments, result, failed=failed)

    def ran(self, name: str, arguments: Any, result: Any = "", *, failed: bool = False) -> None:
        """A tool was called and has returned."""
        self.flush()
        if isinstance(arguments, str):
            arguments = {"command": arguments}
        text, shown = as_text(result), json.dumps(arguments or {}, ensure_ascii=False)
        if failed:
            self.failed_tools.add(len(self.tools))
        self.tools.append(ToolRun(name, shown, text))
        self.turns.append(("assistant", f"[calls {name}({shorten(shown, _SHOWN)})]"))
        self.turns.append(("tool", shorten(text, _SHOWN)))

    def used(self, skill: str) -> bool:
        """Whether the agent asked for a skill: by the harness's own tool, or by reading its file.

        ``skill`` is the name in its frontmatter.
        """
        for index, run in enumerate(self.tools):
            if index in self.failed_tools:
                continue
            if "skill" in run.name.lower():
                if re.search(rf'"{re.escape(skill)}"', run.arguments):
                    return True
            elif f"{skill}/SKILL.md" in run.arguments:
                return True
        return False


@dataclass(frozen=True, slots=True)
class Harness:
    """A coding agent's command line. One of one's own is named ``module:object``."""

    name: str
    executable: str
    package: str
    """What to install where it is missing, as a user would type it."""
    skills: str
    """Folder of a project in which this harness finds skills."""
    protocol: Protocol
    launch: Callable[[Job], Launch]
    read: Callable[[dict[str, Any], Trace], None]
    """Told each JSON line of the standard output; may raise what a surprising event raises."""
    bundled: str = ""
    """``package/path`` of the executable in an installed Python package that brings it."""
    tested: str = ""
    """The version that the adapter was last run with."""
    explicit: str = ""
    """A prompt that forces a skill, with ``{name}`` and ``{prompt}``; empty where none does."""
    version_argument: str = "--version"
    leaves: tuple[str, ...] = ()
    """Files that it leaves in a workspace by itself, relative; no change made by the agent."""
    drive: Callable[..., None] | None = None
    """Talks to the process over its standard input and output; None: it is only listened to."""


def as_text(content: Any) -> str:
    """The text in a tool's result, whatever the harness wraps it in."""
    if isinstance(content, list):
        return "\n".join(as_text(item) for item in content)
    if isinstance(content, dict):
        return as_text(content.get("text") or content.get("content") or content.get("output"))
    return "" if content is None else str(content)


def shorten(text: str, limit: int) -> str:
    """Head and tail of a text that is longer than ``limit`` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
