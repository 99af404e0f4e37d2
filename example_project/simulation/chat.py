"""The request and the reply of the Chat Completions API, as far as the simulated model knows it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from simulation.draws import Draws


class BadRequest(Exception):
    """The request cannot be answered; the server makes an HTTP error of it."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Temper:
    """How reliable a simulated model is; all but ``name`` and ``latency`` are probabilities.

    ``luck``: does the right thing unasked. ``lapse``: forgets a stated convention once.
    ``missed``: does not see the cause of a failure. ``platitude``, ``harmful``, ``leak``: proposes
    such an edit too. ``garbled``: an optimizer's reply that is not JSON.
    """

    name: str
    luck: float
    lapse: float
    missed: float
    platitude: float
    harmful: float
    leak: float
    garbled: float
    latency: float = 0.0
    """Seconds before each reply, so that parallel work and the cache show as with a real model."""


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A declared function; ``parameters`` holds the JSON schema of each parameter."""

    name: str
    description: str
    parameters: dict[str, Any]
    required: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """A parsed request with its own source of chance."""

    temper: Temper
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    schema: dict[str, Any] | None
    """The JSON schema asked for with ``response_format``; None without one."""
    json_mode: bool
    draws: Draws

    @property
    def system(self) -> str:
        return "\n\n".join(m.text for m in self.messages if m.role in ("system", "developer"))

    @property
    def prompt(self) -> str:
        """The last user message."""
        return next((m.text for m in reversed(self.messages) if m.role == "user"), "")

    @property
    def text(self) -> str:
        """Everything that was said, for a role without a conversation."""
        return "\n\n".join(m.text for m in self.messages)


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    tool_calls: tuple[ToolCall, ...] = ()


def parse_request(body: Any, tempers: dict[str, Temper]) -> Request:
    """Check and read the body of a request.

    Chance is seeded by the model's name, whatever marks the sample (``seed``, ``user`` or
    ``metadata``), and the messages up to the last one of the user, so that a tool loop does not
    change its mind between two turns.

    Raises:
        BadRequest: the body is no request that this server can answer.
    """
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        raise BadRequest("the body must be a JSON object with a list of messages")
    if body.get("stream"):
        raise BadRequest("the offline model does not stream")
    name = str(body.get("model", ""))
    if name not in tempers:
        known = ", ".join(tempers)
        raise BadRequest(f"there is no offline model {name!r}, only {known}", status=404)
    if not body["messages"] or not all(isinstance(m, dict) for m in body["messages"]):
        raise BadRequest("messages must be a non-empty list of objects")
    messages = tuple(_message(m) for m in body["messages"])
    sample = json.dumps([body.get(field) for field in ("seed", "user", "metadata")])
    last_user = max((i for i, m in enumerate(messages) if m.role == "user"), default=-1)
    said = json.dumps([[m.role, m.text] for m in messages[: last_user + 1]])
    wanted = body.get("response_format") or {}
    return Request(
        temper=tempers[name],
        messages=messages,
        tools=tuple(_tool(t.get("function") or {}) for t in body.get("tools") or ()),
        schema=(wanted.get("json_schema") or {}).get("schema"),
        json_mode=wanted.get("type") in ("json_object", "json_schema"),
        draws=Draws(name, sample, said),
    )


def _message(data: dict[str, Any]) -> Message:
    content = data.get("content") or ""
    if isinstance(content, list):
        content = "\n".join(str(part.get("text", "")) for part in content)
    calls = tuple(
        ToolCall(c.get("id", ""), c["function"]["name"], _arguments(c["function"].get("arguments")))
        for c in data.get("tool_calls") or ()
    )
    return Message(str(data.get("role", "")), content, calls, str(data.get("tool_call_id", "")))


def _arguments(text: Any) -> dict[str, Any]:
    try:
        parsed = json.loads(text or "{}")
    except json.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _tool(function: dict[str, Any]) -> Tool:
    schema = function.get("parameters") or {}
    return Tool(
        name=str(function.get("name", "")),
        description=str(function.get("description", "")),
        parameters=schema.get("properties") or {},
        required=tuple(schema.get("required") or ()),
    )
