"""A response of the SDK, read as a completion or as a fault.

Servers that call themselves compatible send what the SDK passes on unread: a proxy's HTML page
with status 200, no choices, an empty message, a reply cut off in the middle.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeGuard

from pytest_skillopt.model.faults import Fault, brief
from pytest_skillopt.model.types import Completion, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.model.prices import Price

_CHARACTERS_PER_TOKEN = 4


def read_response(
    response: Any, messages: Sequence[dict[str, Any]], price: Price | None
) -> tuple[Completion | Fault, Usage]:
    """The completion or the fault, and what the call consumed either way.

    Args:
        response: what ``chat.completions.create`` returned, whatever that is.
        messages: of the request, for an estimate where the server reports no usage.
        price: of the model.
    """
    if isinstance(response, str):
        return Fault(f"not JSON but a page: {brief(response)}", retry=True), Usage()
    choices = getattr(response, "choices", None)
    message = getattr(choices[0], "message", None) if choices else None
    if not choices or message is None:
        return Fault(f"a reply without choices{_error_inside(response)}", retry=True), Usage()
    text = _text(message)
    calls = _tool_calls(message)
    usage = _usage(response, messages, text, calls, price)
    reason = str(getattr(choices[0], "finish_reason", None) or "stop")
    fault = _fault(reason, text, calls)
    return fault or Completion(text, calls, reason, usage), usage


def estimate_tokens(text: str) -> int:
    """Tokens of a text, at about 4 characters each, at least 1."""
    return max(1, len(text) // _CHARACTERS_PER_TOKEN)


def _fault(reason: str, text: str, calls: tuple[ToolCall, ...]) -> Fault | None:
    if reason == "length":
        return Fault(
            "the reply was cut off (finish_reason length); raise skillopt_max_output_tokens or "
            "the model's context"
        )
    if reason == "content_filter":
        return Fault("the provider's content filter withheld the reply")
    if not text.strip() and not calls:
        return Fault(f"an empty reply (finish_reason {reason})", retry=True)
    return None


def _text(message: Any) -> str:
    content = getattr(message, "content", None)
    if isinstance(content, list):
        parts = [p.get("text", "") if isinstance(p, dict) else str(p) for p in content]
        return _encodable("".join(map(str, parts)))
    # A refusal is what the model has to say: the test may judge it.
    return _encodable(str(content or getattr(message, "refusal", None) or ""))


def _encodable(text: str) -> str:
    """Without lone surrogates: JSON can write them, but no file and no request can."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _tool_calls(message: Any) -> tuple[ToolCall, ...]:
    found = []
    for index, call in enumerate(getattr(message, "tool_calls", None) or ()):
        function = getattr(call, "function", None)
        if function is None:
            continue
        arguments = getattr(function, "arguments", None)
        found.append(
            ToolCall(
                id=str(getattr(call, "id", None) or f"call_{index}"),
                name=str(getattr(function, "name", None) or ""),
                arguments=_encodable(arguments)
                if isinstance(arguments, str)
                else json.dumps(arguments or {}),
            )
        )
    return tuple(found)


def _usage(
    response: Any,
    messages: Sequence[dict[str, Any]],
    text: str,
    calls: tuple[ToolCall, ...],
    price: Price | None,
) -> Usage:
    reported = getattr(response, "usage", None)
    asked = getattr(reported, "prompt_tokens", None)
    said = getattr(reported, "completion_tokens", None)
    estimated = not (_is_count(asked) and _is_count(said))
    if not _is_count(asked) or not _is_count(said):
        asked = estimate_tokens(json.dumps(list(messages)))
        said = estimate_tokens(text + "".join(call.arguments for call in calls))
    cost = price.cost(asked, said) if price else None
    return Usage(1, 0, asked, said, cost, estimated)


def _is_count(value: object) -> TypeGuard[int]:
    """Whether it can be believed: what is negative would give back what a cap has counted."""
    return isinstance(value, int) and value >= 0


def _error_inside(response: Any) -> str:
    """Some gateways send their error with status 200."""
    error = getattr(response, "error", None)
    if not error:
        return ""
    said = error.get("message") if isinstance(error, dict) else error
    return f": {brief(str(said or error))}"
