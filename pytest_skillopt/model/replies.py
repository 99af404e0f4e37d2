"""What came back: the model's answer, or a fault.

What a skill can bring about is the model's answer, however bad; a proxy's page with status 200, no
choices or a reply cut off in the middle is a fault (docs/decisions/replies.md).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from pytest_skillopt.model.faults import Fault, brief, estimate_tokens
from pytest_skillopt.model.types import Completion, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.model.config import Price

_BROKEN_OFF = ("error", "insufficient_system_resource")
"""Finish reasons by which a gateway says that it could not go on."""


def _encodable(text: str) -> str:
    """Without lone surrogates: JSON can write them, but no file and no request can."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


_Text = Annotated[str, AfterValidator(_encodable)]


class _Function(BaseModel):
    name: str = Field(min_length=1)
    arguments: Any = None

    def text(self) -> str:
        given = self.arguments
        return _encodable(given if isinstance(given, str) else json.dumps(given or {}))


class _Call(BaseModel):
    id: Any = None
    function: _Function


class _Part(BaseModel):
    text: _Text | None = None
    """None: what a reasoning model thought."""


class _Message(BaseModel):
    content: _Text | list[_Part] | None = None
    refusal: _Text | None = None
    tool_calls: list[_Call] | None = None

    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        # A refusal is what the model has to say: the test may judge it.
        return self.content or self.refusal or ""


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Reply(BaseModel):
    choices: list[_Choice] = Field(min_length=1)


def read_response(
    body: bytes, messages: Sequence[dict[str, Any]], price: Price | None, *, cut_counts: bool
) -> tuple[Completion | Fault, Usage]:
    """The completion or the fault, and what the call consumed either way.

    Args:
        body: of a response with status 200.
        messages: of the request, for an estimate where the server reports no usage.
        cut_counts: a reply that was cut off for its length is what the model has to say.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        page = brief(body[:4000].decode("utf-8", "replace"))
        return Fault(f"not JSON but: {page}", retry=True, answered=True), Usage()
    usage = _reported(data)
    try:
        choice = _Reply.model_validate(data).choices[0]
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "all of it"
        words = f"a malformed reply ({where}){_error_inside(data)}"
        return Fault(words, retry=True, answered=True), _priced(usage, price)
    text = choice.message.text()
    calls = tuple(
        ToolCall(str(call.id or f"call_{index}"), call.function.name, call.function.text())
        for index, call in enumerate(choice.message.tool_calls or ())
    )
    if usage is None:
        asked = estimate_tokens(json.dumps(list(messages)))
        said = estimate_tokens(text + "".join(call.arguments for call in calls))
        usage = Usage(1, 0, asked, said, estimated=True)
    usage = _priced(usage, price)
    completion = Completion(text, calls, choice.finish_reason or "stop", usage)
    return _fault(completion, cut_counts) or completion, usage


def _fault(reply: Completion, cut_counts: bool) -> Fault | None:
    if reply.finish_reason == "length":
        if cut_counts:
            return None
        return Fault(
            "the reply was cut off (finish_reason length); raise max_output_tokens in "
            "skillopt_requests, or the model's context",
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
