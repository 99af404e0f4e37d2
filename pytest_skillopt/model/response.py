"""Responses of Chat Completions: a reply of the model, or a fault.

A reply that a skill can cause is the model's answer, however bad; a proxy's page with status 200,
no choices or a reply cut off in the middle is a fault (docs/decisions/replies.md).
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from pytest_skillopt.model.faults import FILTERED, brief, provider_words
from pytest_skillopt.model.tokens import Tokens
from pytest_skillopt.model.types import Completion, ModelFault, ToolCall, hide_frames
from pytest_skillopt.untrusted import encodable, parsed

if TYPE_CHECKING:
    from pytest_skillopt.model.config import ModelConfig
    from pytest_skillopt.model.types import Messages

__tracebackhide__ = hide_frames
_BROKEN_OFF = ("error", "insufficient_system_resource")
"""Finish reasons of a gateway that could not go on."""
_CUT_OFF = ("length", "max_tokens")
_WITHHELD = ("content_filter", "safety", "recitation")
"""Finish reasons of a content filter: the API's own, and those of Gemini that gateways pass on."""

_Text = Annotated[str, AfterValidator(encodable)]
_THOUGHTS = ("thinking", "reasoning", "thought", "reasoning_text")
"""Types of those parts of a message that do not belong to the answer."""


class _Function(BaseModel):
    name: str = Field(min_length=1)
    arguments: Any = None

    def text(self) -> str:
        given = self.arguments
        if not isinstance(given, str):
            given = json.dumps(given or {})
        return encodable(given)


class _Call(BaseModel):
    id: Any = None
    function: _Function


class _Part(BaseModel):
    type: Any = "text"
    text: _Text | None = None
    """None for the thoughts of a reasoning model, or such a text of the type ``reasoning``."""


class _Message(BaseModel):
    content: _Text | list[_Part] | None = None
    refusal: _Text | None = None
    tool_calls: list[_Call] | None = None

    def text(self) -> str:
        if isinstance(self.content, list):
            said = (part.text or "" for part in self.content if part.type not in _THOUGHTS)
            return "".join(said)
        # A refusal is the model's answer: the test may judge it.
        return self.content or self.refusal or ""


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Reply(BaseModel):
    choices: list[_Choice] = Field(min_length=1)


def read_response(body: bytes, messages: Messages, config: ModelConfig) -> Completion:
    """Read the completion from the body of a response with status 200.

    ``messages`` serve for an estimate if the server reports no usage.

    Raises:
        ModelFault: it is not a completion; holds its usage.
    """
    try:
        data = parsed(body)
    except ValueError:
        page = brief(body[:4000].decode("utf-8", "replace"))
        streams = body.lstrip().startswith(b"data:")
        words = "a stream, which was not asked for" if streams else "not JSON but"
        words = f"{words}: {page}"
        raise ModelFault(words, fatal=streams, retry=not streams, answered=True) from None
    told: dict[str, Any] = data if isinstance(data, dict) else {}
    tokens = Tokens.of(told.get("usage"))
    request = json.dumps(list(messages))
    try:
        choice = _Reply.model_validate(data).choices[0]
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "all of it"
        inside = told.get("error")
        words = f"a malformed reply ({where})" + (f": {provider_words(inside)}" if inside else "")
        usage = config.usage(tokens, request)
        raise ModelFault(words, retry=True, answered=True, usage=usage) from None
    text = choice.message.text()
    calls = tuple(
        ToolCall(str(call.id or f"call_{index}"), call.function.name, call.function.text())
        for index, call in enumerate(choice.message.tool_calls or ())
    )
    usage = config.usage(tokens, request, text + "".join(call.arguments for call in calls))
    reply = Completion(text, calls, choice.finish_reason or "stop", usage)
    if fault := _fault(reply, config):
        raise fault
    return reply


def _fault(reply: Completion, config: ModelConfig) -> ModelFault | None:
    fault = partial(ModelFault, answered=True, usage=reply.usage)
    reason = f"(finish_reason {reply.finish_reason})"
    kind = reply.finish_reason.lower()
    if kind in _CUT_OFF:
        # An edit of the skill can keep replies below a limit that the user set.
        if config.role == "target" and config.max_output_tokens:
            return None
        wanted = "raise max_output_tokens in skillopt_requests, or the model's context"
        return fault(f"the reply was cut off {reason}; {wanted}")
    if kind in _WITHHELD:
        return fault(FILTERED, filtered=True)
    if kind in _BROKEN_OFF:
        return fault(f"the provider broke off {reason}", retry=True)
    if not reply.text.strip() and not reply.tool_calls:
        return fault(f"an empty reply {reason}", retry=True, fallback=reply)
    return None
