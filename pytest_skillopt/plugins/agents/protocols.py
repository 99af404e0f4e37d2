"""Read a provider's reply of status 200 in each of the four protocols: events, tokens, faults.

A reply is one JSON value or a stream of server-sent events (WHATWG HTML, 9.2), whichever was
requested. It is always parsed, never searched as text: a model can write anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.faults import brief, judge_status, provider_words
from pytest_skillopt.model.tokens import Tokens
from pytest_skillopt.model.types import ModelFault
from pytest_skillopt.untrusted import parsed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt.model.config import ModelConfig
    from pytest_skillopt.model.types import Usage

    Event = dict[str, Any]
    """Part of a reply, or the whole, as JSON."""


_WHOLE = {
    "chat": ("choices",),
    "responses": ("output",),
    "messages": ("content",),
    "gemini": ("candidates", "promptFeedback"),
}
"""Fields of which a reply that is not a stream has one, by protocol."""
_ENDS = ("response.completed", "response.incomplete", "message_stop")
"""Types of the last event of a stream."""
_PARTS = ("response", "message")
"""Fields of an event that hold a part of the whole reply."""
_USAGES = ("usage", "usageMetadata")
"""Fields of an event, or of such a part, that hold token counts."""
_FINISHED = ("finish_reason", "finishReason", "stop_reason")
_TEXTS = frozenset({"content", "text", "delta", "arguments", "partial_json", "thinking"})
"""Fields that hold a model's output."""


def read_reply(
    protocol: str, text: str, request: str, config: ModelConfig
) -> tuple[Usage, ModelFault | None]:
    """Return the usage of a call, and why its reply is unusable, if it is.

    Args:
        protocol: ``chat``, ``responses``, ``messages`` or ``gemini``.
        text: the whole reply.
        request: JSON of the request, to estimate the tokens if the provider reports none.
        config: the model that was called.
    """
    events, streamed, broken = _events(text)
    usage = config.usage(Tokens.most(_usage_records(events)), request, "".join(_texts(events)))
    return usage, _fault(_WHOLE[protocol], events, streamed, broken, text)


def _events(text: str) -> tuple[list[Event], bool, str]:
    """Return a reply's JSON objects, whether it is a stream, and an event that is not JSON."""
    try:
        whole = parsed(text)
        # Gemini streams a JSON list unless events are requested.
        found = whole if isinstance(whole, list) else [whole]
        return [event for event in found if isinstance(event, dict)], isinstance(whole, list), ""
    except ValueError:
        pass
    events = []
    broken = ""
    for kind, data in _blocks(text):
        try:
            event = parsed(data)
        except ValueError:
            broken = data
            continue
        if isinstance(event, dict):
            if kind:
                event = {"type": kind, **event}
            events.append(event)
    return events, True, broken


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield kind and data of each event of a stream, except empty ones and its end."""
    for block in text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
        kind = ""
        data = []
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            if name == "event":
                kind = value.strip()
            elif name == "data":
                data.append(value.removeprefix(" "))
        joined = "\n".join(data).strip()
        if joined not in ("", "[DONE]"):
            yield kind, joined


def _usage_records(events: list[Event]) -> list[Any]:
    """List the token counts of the events and of the parts in them."""
    holders = list(events)
    for event in events:
        holders += [part for name in _PARTS if isinstance(part := event.get(name), dict)]
    return [holder.get(name) for holder in holders for name in _USAGES]


def _texts(events: list[Event]) -> Iterator[str]:
    """Yield all output of a model, in any order."""
    waiting: list[Any] = list(events)
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            for name, inner in value.items():
                if not isinstance(inner, str):
                    waiting.append(inner)
                elif name in _TEXTS:
                    yield inner


def _fault(
    whole: tuple[str, ...], events: list[Event], streamed: bool, broken: str, text: str
) -> ModelFault | None:
    if not events:
        return ModelFault(f"unreadable reply: {brief(text) or 'empty'}", retry=True, answered=True)
    for event in events:
        error = event.get("error")
        if event.get("type") in ("error", "response.failed"):
            inner = event.get("response")
            inner = inner if isinstance(inner, dict) else event
            error = inner.get("error") or inner
        if error:
            words = f"an error instead of a reply: {provider_words(error)}"
            judged = judge_status(500, error, {})
            # Output before the error may have been paid for.
            has_output = any(_texts(events[:-1]))
            return ModelFault(words, fatal=judged.fatal, retry=judged.retry, answered=has_output)
    if broken:
        words = f"the reply broke off, or has an event that is not JSON: {brief(broken[:400])}"
        return ModelFault(words, retry=True, answered=True)
    if streamed and not any(map(_is_last, events)):
        return ModelFault("the reply broke off", retry=True, answered=True)
    if not streamed and all(events[0].get(name) is None for name in whole):
        words = f"a malformed reply (no {' or '.join(whole)}): {brief(text)}"
        return ModelFault(words, retry=True, answered=True)
    return None


def _is_last(event: Event) -> bool:
    """Return whether the reply is complete with this event."""
    if event.get("type") in _ENDS or event.get("promptFeedback"):
        return True
    parts = [event.get("delta"), *_list(event.get("choices")), *_list(event.get("candidates"))]
    parts = [part for part in parts if isinstance(part, dict)]
    return any(isinstance(part.get(name), str) for part in parts for name in _FINISHED)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
