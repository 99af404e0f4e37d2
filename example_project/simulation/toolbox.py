"""Calling tools: which of the offered ones serve a requested key, and with what arguments."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from simulation.chat import ToolCall
from simulation.prompt import concept_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulation.chat import Message, Request, Tool
    from simulation.clerk import Clerk
    from simulation.prompt import Key

# What a tool must say of itself to be of use for a key.
_SERVES = {
    "due_date": re.compile(r"\bdays?\b|\bdue\b|add days", re.IGNORECASE),
    "supplier_id": re.compile(r"supplier|vendor|creditor", re.IGNORECASE),
}
_CALL_PREFIX = "call_"


def tool_calls(
    request: Request, keys: Sequence[Key], clerk: Clerk, *, done: set[str]
) -> tuple[ToolCall, ...]:
    """The calls to make now: one for each key that a tool serves and no result is there for yet."""
    calls = []
    for key in keys:
        serves = _SERVES.get(key.concept)
        if serves is None or key.concept in done or _printed(key, clerk):
            continue
        for tool in request.tools:
            says = f"{tool.name} {tool.description}".replace("_", " ")
            arguments = _arguments(tool, clerk) if serves.search(says) else None
            if arguments is not None and clerk.house.uses_tool(tool):
                calls.append(ToolCall(_call_id(key.concept, tool.name), tool.name, arguments))
                break
    return tuple(calls)


def tool_results(messages: Sequence[Message]) -> dict[str, str]:
    """Results since the last user message, by the concept they were asked for."""
    results: dict[str, str] = {}
    for message in messages:
        if message.role == "user":
            results.clear()
        if message.role == "tool" and message.tool_call_id.startswith(_CALL_PREFIX):
            concept = message.tool_call_id.removeprefix(_CALL_PREFIX).rsplit("_", 1)[0]
            results[concept] = _result(message.text, concept)
    return results


def _call_id(concept: str, tool: str) -> str:
    """An id that says what the call was for, so that its result finds its way back."""
    return f"{_CALL_PREFIX}{concept}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"


def _printed(key: Key, clerk: Clerk) -> bool:
    return key.concept in clerk.invoice.headers


def _arguments(tool: Tool, clerk: Clerk) -> dict[str, Any] | None:
    """Arguments by the names of the parameters, or None where a required one cannot be filled."""
    filled = {name: _argument(name, clerk) for name in tool.parameters}
    if not filled or any(filled.get(name) is None for name in tool.required):
        return None
    return {name: value for name, value in filled.items() if value is not None}


def _argument(name: str, clerk: Clerk) -> Any:
    lowered = name.lower()
    if re.search(r"\bn\b|days?|terms?|period", lowered):
        return clerk.days_to_pay()
    if re.search(r"date|start|day|from|issued|since", lowered):
        issued = clerk.issue_date()
        return issued.isoformat() if issued else None
    if lowered in ("name", "query", "company"):
        return clerk.invoice.headers.get("supplier")
    return clerk.invoice.headers.get(concept_of(name))


def _result(text: str, concept: str) -> str:
    """The value in a tool's answer: the text itself, or the fitting member of a JSON object."""
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError:
        return text.strip()
    if isinstance(parsed, dict):
        fitting = [v for k, v in parsed.items() if concept_of(k) == concept]
        return str((fitting or list(parsed.values()) or [text])[0])
    return str(parsed) if isinstance(parsed, str) else text.strip()
