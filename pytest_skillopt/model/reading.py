"""The body of a reply, read as a completion or as a fault.

Servers that call themselves compatible send a proxy's page with status 200, no choices, a number
where a text belongs, nothing at all, or a reply cut off in the middle. What a skill can bring about
is the model's answer, however bad; the rest is a fault. See docs/decisions/replies.md.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeGuard

from pytest_skillopt.model.faults import Fault, brief
from pytest_skillopt.model.types import Completion, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.model.config import Price

_CHARACTERS_PER_TOKEN = 4
_BROKEN_OFF = ("error", "insufficient_system_resource")
"""Finish reasons by which a gateway says that it could not go on."""


class _Malformed(ValueError):
    """The body is not what the Chat Completions API sends."""


def read_response(
    body: bytes, messages: Sequence[dict[str, Any]], price: Price | None, *, cut_counts: bool
) -> tuple[Completion | Fault, Usage]:
    """The completion or the fault, and what the call consumed either way.

    Args:
        body: of a response with status 200.
        messages: of the request, for an estimate where the server reports no usage.
        price: of the model.
        cut_counts: a reply that was cut off for its length is what the model has to say.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        page = brief(body[:4000].decode("utf-8", "replace"))
        return Fault(f"not JSON but: {page}", retry=True, answered=True), Usage()
    usage = _reported(data)
    try:
        text, calls, reason = _read(data)
    except _Malformed as error:
        words = f"a malformed reply: {error}{_error_inside(data)}"
        return Fault(words, retry=True, answered=True), _priced(usage, price)
    if usage is None:
        asked = estimate_tokens(json.dumps(list(messages)))
        said = estimate_tokens(text + "".join(call.arguments for call in calls))
        usage = Usage(1, 0, asked, said, estimated=True)
    usage = _priced(usage, price)
    completion = Completion(text, calls, reason, usage)
    return _fault(completion, cut_counts) or completion, usage


def estimate_tokens(text: str) -> int:
    """Tokens of a text, at about 4 characters each, at least 1."""
    return max(1, len(text) // _CHARACTERS_PER_TOKEN)


def _fault(reply: Completion, cut_counts: bool) -> Fault | None:
    if reply.finish_reason == "length":
        if cut_counts:
            return None
        return Fault(
            "the reply was cut off (finish_reason length); raise skillopt_max_output_tokens or "
            "the model's context",
            answered=True,
        )
    if reply.finish_reason == "content_filter":
        return Fault("the provider's content filter withheld the reply", answered=True)
    if reply.finish_reason in _BROKEN_OFF:
        words = f"the provider broke off (finish_reason {reply.finish_reason})"
        return Fault(words, retry=True, answered=True)
    if not reply.text.strip() and not reply.tool_calls:
        words = f"an empty reply (finish_reason {reply.finish_reason})"
        return Fault(words, retry=True, answered=True, stays=reply)
    return None


def _read(data: Any) -> tuple[str, tuple[ToolCall, ...], str]:
    """Text, tool calls and finish reason.

    Raises:
        _Malformed: a field is missing or of another type than the API says.
    """
    choices = _field(data, "choices", list)
    if not choices:
        raise _Malformed("no choices")
    message = _field(choices[0], "message", dict)
    if message is None:
        raise _Malformed("no message")
    # A refusal is what the model has to say: the test may judge it.
    text = _text(message.get("content")) or _field(message, "refusal", str) or ""
    calls = _field(message, "tool_calls", list) or []
    reason = _field(choices[0], "finish_reason", str) or "stop"
    return _encodable(text), tuple(_tool_call(i, call) for i, call in enumerate(calls)), reason


def _field(data: Any, name: str, kind: type) -> Any:
    if not isinstance(data, dict):
        raise _Malformed(f"no object around {name}")
    value = data.get(name)
    if value is not None and not isinstance(value, kind):
        raise _Malformed(f"{name} is {brief(repr(value))[:80]}")
    return value


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise _Malformed(f"content is {brief(repr(content))[:80]}")
    # Parts without a text are what a reasoning model thought.
    return "".join(_field(part, "text", str) or "" for part in content)


def _tool_call(index: int, call: Any) -> ToolCall:
    function = _field(call, "function", dict) or {}
    name = _field(function, "name", str)
    if not name:
        raise _Malformed("a tool call without a name")
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ToolCall(str(call.get("id") or f"call_{index}"), name, _encodable(text))


def _encodable(text: str) -> str:
    """Without lone surrogates: JSON can write them, but no file and no request can."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _reported(data: Any) -> Usage | None:
    """What the server says was consumed; None where it says nothing that can be believed."""
    usage = data.get("usage") if isinstance(data, dict) else None
    if not isinstance(usage, dict):
        return None
    asked, said = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return Usage(1, 0, asked, said) if _is_count(asked) and _is_count(said) else None


def _is_count(value: object) -> TypeGuard[int]:
    """Whether it can be believed: what is negative would give back what a cap has counted."""
    return type(value) is int and 0 <= value < 2**53


def _priced(usage: Usage | None, price: Price | None) -> Usage:
    if usage is None or price is None:
        return usage or Usage()
    cost = price.cost(usage.input_tokens, usage.output_tokens)
    return Usage(usage.calls, 0, usage.input_tokens, usage.output_tokens, cost, usage.estimated)


def _error_inside(data: Any) -> str:
    """Some gateways send their error with status 200."""
    error = data.get("error") if isinstance(data, dict) else None
    if not error:
        return ""
    said = error.get("message") if isinstance(error, dict) else error
    return f": {brief(str(said or error))}"
