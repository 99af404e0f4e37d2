"""Replies read from HTTP responses: the model's answer, or a fault.

A reply that a skill can cause is the model's answer, however bad; a proxy's page with status 200,
no choices or a reply cut off in the middle is a fault (docs/decisions/replies.md).
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from pytest_skillopt.model.faults import brief, estimate_tokens, provider_words
from pytest_skillopt.model.types import Completion, ModelFault, ToolCall, Usage
from pytest_skillopt.untrusted import encodable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.model.config import ModelConfig

_BROKEN_OFF = ("error", "insufficient_system_resource")
"""Finish reasons of a gateway that could not go on."""

_Text = Annotated[str, AfterValidator(encodable)]


class _Function(BaseModel):
    name: str = Field(min_length=1)
    arguments: Any = None

    def text(self) -> str:
        given = self.arguments
        return encodable(given if isinstance(given, str) else json.dumps(given or {}))


class _Call(BaseModel):
    id: Any = None
    function: _Function


class _Part(BaseModel):
    text: _Text | None = None
    """None for the thoughts of a reasoning model."""


class _Message(BaseModel):
    content: _Text | list[_Part] | None = None
    refusal: _Text | None = None
    tool_calls: list[_Call] | None = None

    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        # A refusal is the model's answer: the test may judge it.
        return self.content or self.refusal or ""


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Reply(BaseModel):
    choices: list[_Choice] = Field(min_length=1)


_Count = Annotated[int, Field(strict=True, ge=0, lt=2**53)]
"""A token count; a negative one would reduce the count of a cap."""


class _Counts(BaseModel):
    prompt_tokens: _Count
    completion_tokens: _Count


def read_response(
    body: bytes, messages: Sequence[dict[str, Any]], config: ModelConfig
) -> Completion:
    """Read the completion from a response.

    Args:
        body: of a response with status 200.
        messages: of the request, for an estimate if the server reports no usage.
        config: of the model.

    Raises:
        ModelFault: it is not a completion; holds its usage.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        page = brief(body[:4000].decode("utf-8", "replace"))
        raise ModelFault(f"not JSON but: {page}", retry=True, answered=True) from None
    usage = _reported(data, config)
    try:
        choice = _Reply.model_validate(data).choices[0]
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "all of it"
        inside = data.get("error") if isinstance(data, dict) else None
        words = f"a malformed reply ({where})" + (f": {provider_words(inside)}" if inside else "")
        raise ModelFault(words, retry=True, answered=True, usage=usage) from None
    text = choice.message.text()
    calls = tuple(
        ToolCall(str(call.id or f"call_{index}"), call.function.name, call.function.text())
        for index, call in enumerate(choice.message.tool_calls or ())
    )
    if not usage.calls:
        asked = estimate_tokens(json.dumps(list(messages)))
        said = estimate_tokens(text + "".join(call.arguments for call in calls))
        usage = config.usage(asked, said, estimated=True)
    reply = Completion(text, calls, choice.finish_reason or "stop", usage)
    if fault := _fault(reply, config):
        raise fault
    return reply


def _fault(reply: Completion, config: ModelConfig) -> ModelFault | None:
    fault = partial(ModelFault, answered=True, usage=reply.usage)
    reason = f"(finish_reason {reply.finish_reason})"
    if reply.finish_reason == "length":
        # An edit of the skill can keep replies below a limit that the user set.
        if config.role == "target" and config.max_output_tokens:
            return None
        wanted = "raise max_output_tokens in skillopt_requests, or the model's context"
        return fault(f"the reply was cut off {reason}; {wanted}")
    if reply.finish_reason == "content_filter":
        return fault("the provider's content filter withheld the reply")
    if reply.finish_reason in _BROKEN_OFF:
        return fault(f"the provider broke off {reason}", retry=True)
    if not reply.text.strip() and not reply.tool_calls:
        return fault(f"an empty reply {reason}", retry=True, fallback=reply)
    return None


def _reported(data: Any, config: ModelConfig) -> Usage:
    """Return the usage that the server reports; no calls if it reports none or an invalid one."""
    try:
        found = _Counts.model_validate(data["usage"])
    except (ValidationError, TypeError, KeyError):
        return Usage()
    return config.usage(found.prompt_tokens, found.completion_tokens)
