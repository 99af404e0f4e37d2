"""What came back: the model's answer, or a fault, passing or fatal, in the provider's own words.

Servers that call themselves compatible send a proxy's page with status 200, no choices, a number
where a text belongs, nothing at all, or a reply cut off in the middle. What a skill can bring about
is the model's answer, however bad; the rest is a fault (docs/decisions/replies.md).

The SDK is never imported here: an exception of its classes can only exist once it has been.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeGuard

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from pytest_skillopt.model.types import (
    CacheError,
    CacheMiss,
    CapReached,
    Completion,
    ModelFault,
    ToolCall,
    Usage,
)
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_skillopt.model.config import Price

_MAX_WORDS = 400
_CHARACTERS_PER_TOKEN = 4
_BROKEN_OFF = ("error", "insufficient_system_resource")
"""Finish reasons by which a gateway says that it could not go on."""
_FATAL_STATUS = frozenset({401, 402, 403, 404})
_PASSING_STATUS = frozenset({408, 409, 425, 429})
_FATAL_CODES = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "account_deactivated",
        "invalid_api_key",
        "model_not_found",
        "unsupported_parameter",
        "unsupported_value",
    }
)
_KEY_SHAPE = re.compile(r"\b(sk|gsk|xai|hf)[-_][A-Za-z0-9_*.\-]{6,}|(?<=Bearer )\S+")
_MARKUP = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why there is no reply. Never a wrong answer of the model."""

    message: str
    kind: Literal["provider", "cap", "cache"] = "provider"
    fatal: bool = False
    """No retry can help (a wrong key, no quota, an unknown model)."""
    retry: bool = False
    """The same request may well succeed a moment later."""
    retry_after: float = 0.0
    """Seconds that the provider asked everybody to wait; 0: it said nothing."""
    status: int = 0
    """HTTP status of a refusal, else 0."""
    answered: bool = False
    """The provider may have been paid: it had the request and did not refuse it."""
    stays: Completion | None = None
    """What the reply is taken for when a repetition brings the same."""

    @property
    def refused(self) -> bool:
        """The provider does not serve such a request, now or later."""
        return self.fatal or (400 <= self.status < 500 and not self.retry)


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
    """What of a reply of the Chat Completions API is read."""

    choices: list[_Choice] = Field(min_length=1)


class ReplyBroken(Exception):
    """The connection went while a reply was coming."""


class ReplyTooLarge(Exception):
    """A reply has more bytes than it may have."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the reply is longer than {most:,} bytes")


def classify(error: BaseException) -> Fault | None:
    """Judge an exception, of the SDK or of this package; None for any other.

    An exception of another library counts when it was raised inside the SDK (a ``JSONDecodeError``
    of a broken body); the same exception raised by a test is the test's own affair.
    """
    if isinstance(error, CapReached):
        return Fault(str(error), "cap")
    if isinstance(error, CacheMiss | CacheError):
        return Fault(str(error), "cache")
    if isinstance(error, ModelFault):
        return Fault(str(error), fatal=error.fatal)
    sdk = sys.modules.get("openai")
    if sdk is None:
        return None
    if isinstance(error, sdk.APIStatusError):
        return judge_status(error.status_code, error.body or str(error), error.response.headers)
    # Version 2 of the SDK wraps even its own exceptions when the HTTP client raises them.
    if any(isinstance(e, sdk.APITimeoutError) for e in (error, error.__cause__)):
        words = "the provider did not answer in time (skillopt_request_timeout)"
        return Fault(words, retry=True, answered=not _is_unsent(error))
    for cause in (error, error.__cause__):
        if isinstance(cause, ReplyBroken | ReplyTooLarge):
            return Fault(brief(str(cause)), retry=isinstance(cause, ReplyBroken), answered=True)
    if isinstance(error, sdk.APIConnectionError):
        return Fault(f"cannot reach {_address(error)}: {_root_cause(error)}", retry=True)
    if isinstance(error, sdk.OpenAIError) or _raised_inside_sdk(error):
        words = f"unreadable reply ({type(error).__name__}: {brief(str(error))})"
        return Fault(words, retry=True, answered=True)
    return None


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


def estimate_tokens(text: str) -> int:
    """Tokens of a text, at about 4 characters each, at least 1."""
    return max(1, len(text) // _CHARACTERS_PER_TOKEN)


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


def hide_keys(text: str, *secrets: str) -> str:
    """``text`` without the given secrets and without what has the shape of an API key."""
    for secret in secrets:
        if len(secret) >= 8:
            text = text.replace(secret, "[key]")
    return _KEY_SHAPE.sub("[key]", text)


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float:
    """Seconds to wait as ``Retry-After`` (seconds or a date) or ``retry-after-ms`` say; else 0.

    A date is compared with the server's own clock, where it tells the time: ours may be wrong.
    """
    millis = _positive(headers.get("retry-after-ms"))
    if millis:
        return millis / 1000
    text = headers.get("retry-after") or ""
    seconds = _positive(text)
    if seconds or not text:
        return seconds
    when, there = _moment(text), _moment(headers.get("date") or "")
    here = time.time() if now is None else now
    return max(0.0, when - (there or here)) if when else 0.0


def _moment(text: str) -> float:
    """An HTTP date in seconds since the epoch; 0.0 where it is none."""
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def judge_status(status: int, body: Any, headers: Mapping[str, str]) -> Fault:
    """Judge a refusal.

    Args:
        status: of HTTP.
        body: the error in the reply's body, parsed, or a text.
        headers: of the reply, by lower-case name or in any case.
    """
    code = str(body.get("code") or body.get("type") or "") if isinstance(body, dict) else ""
    fatal = status in _FATAL_STATUS or code in _FATAL_CODES
    passing = status in _PASSING_STATUS or status >= 500
    words = _provider_words(body)
    hint = " (is the base URL right, is the model known there?)" if status == 404 else ""
    if 300 <= status < 400:
        target = brief(headers.get("location") or "another place")
        words, fatal = f"redirects to {target}, which is not followed", True
        hint = "; set skillopt_base_url to where the model is"
    return Fault(
        f"HTTP {status}: {words}{hint}",
        fatal=fatal,
        retry=passing and not fatal,
        retry_after=retry_after(headers) if passing and not fatal else 0.0,
        status=status,
    )


def _provider_words(body: Any) -> str:
    if isinstance(body, dict):
        said = body.get("message") or body.get("detail") or body.get("error") or body
        code = body.get("code") or ""
        text = said if isinstance(said, str) else json.dumps(said, default=str)
        return brief(f"{text} [{code}]" if code and str(code) not in text else text)
    return brief(str(body))


def brief(text: str) -> str:
    """One line of at most ``_MAX_WORDS`` characters, without markup and keys."""
    line = hide_keys(redact(" ".join(_MARKUP.sub(" ", text).split())))
    return line if len(line) <= _MAX_WORDS else line[: _MAX_WORDS - 1] + "…"


def _address(error: Any) -> str:
    url = error.request.url
    return f"{url.scheme}://{url.netloc.decode()}"


def _is_unsent(error: BaseException) -> bool:
    """Whether the provider cannot have got the request: no connection, no request."""
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__name__ in ("ConnectTimeout", "PoolTimeout"):
            return True
        cause = cause.__cause__
    return False


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return brief(str(error) or type(error).__name__)


def _raised_inside_sdk(error: BaseException) -> bool:
    traceback = error.__traceback__
    while traceback is not None:
        if str(traceback.tb_frame.f_globals.get("__name__", "")).split(".")[0] == "openai":
            return True
        traceback = traceback.tb_next
    return False


def _positive(text: str | None) -> float:
    try:
        value = float(text or 0)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and value > 0 else 0.0
