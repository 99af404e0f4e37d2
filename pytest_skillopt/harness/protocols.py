"""What a proxy must know of the four ways to speak to a model: which requests there are, whether a
reply is whole, and what it consumed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt.harness.records import Protocol

_GEMINI = re.compile(r"(/v1(?:beta|alpha)?/models/)([^/:]+)(:\w+)$")
_ENDED = {
    "message_stop",
    "response.completed",
    "response.incomplete",
}
"""Types of the event that ends a stream of Messages or of Responses."""
_FAULTS = ("error", "response.failed")


@dataclass(frozen=True, slots=True)
class Request:
    """A request of an agent, as far as it matters."""

    protocol: Protocol
    path: str
    paid: bool
    """A call that draws from a model, not one that counts tokens."""


@dataclass(frozen=True, slots=True)
class Content:
    """What the body of a reply with status 200 tells."""

    whole: bool
    """It has the end that its protocol prescribes."""
    fault: Any
    """An error that came instead of, or in the middle of, the reply; None: there is none."""
    input_tokens: int
    output_tokens: int


def recognise(path: str, model: str) -> Request | None:
    """The request of a path, with its model replaced by ``model``; None for anything else."""
    if path.endswith("/messages/count_tokens"):
        return Request("messages", path, paid=False)
    if path.endswith("/messages"):
        return Request("messages", path, paid=True)
    if path.endswith("/chat/completions"):
        return Request("chat", path, paid=True)
    if "/responses" in path:
        return Request("responses", path, paid=True)
    found = _GEMINI.search(path)
    if found and found[3] in (":generateContent", ":streamGenerateContent", ":countTokens"):
        whole = f"{path[: found.start()]}{found[1]}{model}{found[3]}"
        return Request("gemini", whole, paid=found[3] != ":countTokens")
    return None


def with_model(request: Request, body: dict[str, Any], model: str) -> dict[str, Any]:
    """The body with the model that is under test, and with the wish to be told what it used."""
    if request.protocol == "gemini":
        return body
    body = {**body, "model": model}
    if request.protocol == "chat" and body.get("stream"):
        body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    return body


def read_content(request: Request, text: str) -> Content | None:
    """Read the body of a reply; None where it is not of the request's protocol."""
    parts = list(_objects(text))
    if not parts:
        return None
    fault = next((part for part in parts if _is_fault(part)), None)
    if fault is not None:
        return Content(False, fault, 0, 0)
    counts = [_counts(part) for part in parts]
    whole = any(_ends(request, part) for part in parts)
    return Content(whole, None, max(c[0] for c in counts), max(c[1] for c in counts))


def texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a reply: one, a list of them, or the data of server-sent events."""
    try:
        value = json.loads(text)
    except ValueError:
        for line in text.splitlines():
            if line.startswith("data:"):
                try:
                    value = json.loads(line[5:])
                except ValueError:
                    continue
                if isinstance(value, dict):
                    yield value
        return
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            yield item


def _is_fault(part: dict[str, Any]) -> bool:
    return part.get("type") in _FAULTS or bool(part.get("error"))


def _ends(request: Request, part: dict[str, Any]) -> bool:
    if request.protocol == "chat":
        return any(choice.get("finish_reason") for choice in part.get("choices") or ())
    if request.protocol == "gemini":
        return any(c.get("finishReason") for c in part.get("candidates") or ()) or bool(
            part.get("promptFeedback")
        )
    if request.protocol == "responses":
        return part.get("type") in _ENDED or part.get("object") in (
            "response",
            "response.compaction",
        )
    return part.get("type") in _ENDED or bool(part.get("stop_reason"))


def _counts(part: dict[str, Any]) -> tuple[int, int]:
    """Tokens in and out that an object of a reply reports; each event repeats or extends them."""
    nested = part.get("message") or part.get("response") or {}
    usage = part.get("usage") or part.get("usageMetadata")
    usage = usage or (nested.get("usage") if isinstance(nested, dict) else None) or {}
    asked = ("input_tokens", "prompt_tokens", "promptTokenCount")
    said = ("output_tokens", "completion_tokens", "candidatesTokenCount")
    # Anthropic counts what its prompt cache answers apart, Gemini what a model thinks.
    asked_beside = ("cache_read_input_tokens", "cache_creation_input_tokens")
    return (
        _first(usage, asked) + sum(_first(usage, (name,)) for name in asked_beside),
        _first(usage, said) + _first(usage, ("thoughtsTokenCount",)),
    )


def _first(usage: dict[str, Any], names: tuple[str, ...]) -> int:
    return next((usage[name] for name in names if isinstance(usage.get(name), int)), 0)
