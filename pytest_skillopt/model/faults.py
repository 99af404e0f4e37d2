"""Reasons for a missing reply: passing and fatal faults, in the provider's own words.

The SDK is never imported here: an exception of its classes can only exist after its import.
"""

from __future__ import annotations

import json
import math
import re
import sys
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.types import ModelFault
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONNECT_SECONDS = 5.0
"""Most seconds until a server accepts a connection."""
_MAX_WORDS = 400
_FATAL_STATUS = frozenset({401, 402, 403, 404, 407, 410})
_HINTS = {
    401: " (is the key right?)",
    403: " (may the key use this model?)",
    404: " (is the base URL right, is the model known there?)",
    407: " (is the login in HTTP_PROXY right?)",
}
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
_UNREACHED = ("ConnectError", "ConnectTimeout", "ProxyError")
_LOST = ("ReadError", "RemoteProtocolError")
"""Errors of a connection that ends after the request was sent, which may have been paid for."""
_FILTER_CODES = frozenset({"content_filter", "content_policy_violation"})
FILTERED = "the provider's content filter withheld the reply"
_KEY_SHAPE = re.compile(r"\b(sk|gsk|xai|hf)[-_][A-Za-z0-9_*.\-]{6,}|(?<=Bearer )\S+")
_TIME = re.compile(r"(\d{1,9}(?:\.\d+)?)\s*(milli|ms|[mh]|)", re.IGNORECASE)
_PAUSE = re.compile(
    r"(?:try again|retry|wait)(?: after| in| for)? ((?:\d{1,9}(?:\.\d+)?\s*(?:ms|milliseconds?|"
    r"seconds?|sec|s|minutes?|min|m|hours?|h)\s*)+)",
    re.IGNORECASE,
)
"""A pause in the words of a refusal: "Please try again in 1m12.5s"."""
_PAUSE_FIELDS = frozenset(
    {"retry_after", "retryAfter", "retryDelay", "retry_after_seconds", "cooldown_time", "cooldown"}
)
_NO_PAUSE = 1e9
"""Seconds from which a number is no pause; a longer one than 309 digits has no float."""
_DEEPEST = 6
"""Levels of a body that are searched for a pause."""
_SECONDS = {"": 1.0, "ms": 0.001, "milli": 0.001, "m": 60.0, "h": 3600.0}
_MARKUP = re.compile(r"<(script|style)\b.*?(?:</\1>|\Z)|<[^<>]*>", re.DOTALL | re.IGNORECASE)


def too_slow(*, answered: bool = True) -> ModelFault:
    words = "the provider did not answer in time (skillopt_request_timeout, skillopt_max_in_flight)"
    return ModelFault(words, retry=True, answered=answered)


def classify(error: BaseException) -> ModelFault | None:
    """Turn an exception of the SDK or of a model into a fault; None for any other.

    An exception of another library counts if it was raised inside the SDK, such as a
    ``JSONDecodeError`` for a broken body, or an ``ImportError`` for the package that a proxy needs;
    an exception that a test raises does not.
    """
    if isinstance(error, ModelFault):
        return error
    sdk = sys.modules.get("openai")
    if sdk is None:
        return None
    if isinstance(error, sdk.APIStatusError):
        return judge_status(error.status_code, error.body or str(error), error.response.headers)
    # Version 2 of the SDK wraps even its own exceptions when the HTTP client raises them.
    if isinstance(error, sdk.APIConnectionError) and isinstance(error.__cause__, ModelFault):
        return error.__cause__
    if isinstance(error, sdk.APIConnectionError):
        return _not_connected(error)
    return _raised_inside(error, sdk.OpenAIError)


def _raised_inside(error: BaseException, kind: type[BaseException]) -> ModelFault | None:
    """Return the fault of an exception of ``kind``, or of one that was raised inside the SDK."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    of_sdk = [f for f in frames if str(f.f_globals.get("__name__")).startswith("openai.")]
    inside = {frame.f_code.co_name for frame in of_sdk}
    if isinstance(error, kind) or inside:
        is_unmade = "__init__" in inside and "request" not in inside  # the client itself
        # A plugin, such as pytest-socket, forbids connections in this process.
        is_forbidden = any(frame.f_code.co_name == "connect_tcp" for frame in frames)
        if isinstance(error, ImportError) or is_unmade or is_forbidden:
            where = " (SSL_CERT_FILE or SSL_CERT_DIR)" if isinstance(error, OSError) else ""
            words = f"no request can be sent: {brief(str(error))}{where}"
            return ModelFault(words, fatal=True)
        words = f"unreadable reply ({type(error).__name__}: {brief(str(error))})"
        return ModelFault(words, retry=True, answered=True)
    return None


def _not_connected(error: Any) -> ModelFault:
    *_, first = causes = list(_causes(error))
    # The error of a certificate is an argument of the one that the HTTP client raises.
    kinds = {type(e).__name__ for e in (*causes, *first.args)}
    unreached = not kinds.isdisjoint(_UNREACHED)
    if "APITimeoutError" in kinds and not unreached:
        return too_slow(answered="PoolTimeout" not in kinds)
    words = f"cannot reach {_server(error)}: {brief(str(first) or type(first).__name__)}"
    if "SSLCertVerificationError" in kinds:
        words += " (SSL_CERT_FILE names the certificates to trust)"
    elif unreached:
        words += " (is the base URL right?)"
    return ModelFault(words, retry=True, answered=not kinds.isdisjoint(_LOST), unreached=unreached)


def _server(error: Any) -> str:
    """Name the server of a request, and the variable of the proxy before it."""
    from urllib.request import getproxies, proxy_bypass

    from pytest_skillopt.model.config import is_local

    url = error.request.url
    proxies = getproxies()
    server = f"{url.scheme}://{url.netloc.decode()}"
    name = url.scheme if url.scheme in proxies else "all"
    if is_local(server) or proxy_bypass(url.host) or name not in proxies:
        return server
    return f"{server} through {name.upper()}_PROXY"


def retry_after(headers: Mapping[str, str], body: Any = None) -> float:
    """Read the seconds to wait from the headers, else from the body of a refusal; 0.0 if none."""
    for name, parts in (("retry-after-ms", 1000), ("retry-after", 1)):
        with suppress(ValueError):
            seconds = float(headers.get(name) or 0) / parts
            if 0 < seconds < math.inf:
                return seconds
    with suppress(ValueError, TypeError):
        date = parsedate_to_datetime(headers.get("retry-after") or "")
        return max(0.0, (date - datetime.now(UTC)).total_seconds())
    return max(0.0, *_pauses(body, depth=0))


def _pauses(body: Any, depth: int) -> Iterator[float]:
    """Yield the seconds to wait that a parsed body names: in a field, else in its message."""
    yield 0.0
    if isinstance(body, str):
        if found := _PAUSE.search(body):
            yield _seconds(found[1])
    elif depth < _DEEPEST and isinstance(body, dict | list):
        for name, value in body.items() if isinstance(body, dict) else enumerate(body):
            if name in _PAUSE_FIELDS:
                if isinstance(value, int | float) and 0 < value < _NO_PAUSE:
                    yield float(value)
                elif isinstance(value, str):
                    yield _seconds(value)
            else:
                yield from _pauses(value, depth + 1)


def _seconds(text: str) -> float:
    return sum(float(number) * _SECONDS[unit.lower()] for number, unit in _TIME.findall(text))


def judge_status(status: int, body: Any, headers: Mapping[str, str]) -> ModelFault:
    """Turn a refusal into a fault: its HTTP status, body (parsed, or a text) and headers."""
    code = ""
    if isinstance(body, dict):
        code = str(body.get("code") or body.get("type") or "")
    fatal = status in _FATAL_STATUS or code in _FATAL_CODES
    passing = status in _PASSING_STATUS or status >= 500
    words = provider_words(body)
    filtered = code in _FILTER_CODES
    if filtered:
        words = f"{FILTERED}: {words}"
    hint = _HINTS.get(status, "")
    if 300 <= status < 400:
        target = brief(headers.get("location") or "another place")
        words = f"redirects to {target}, which is not followed"
        fatal = True
        hint = "; set skillopt_base_url to where the model is"
    fault = ModelFault(
        f"HTTP {status}: {words}{hint}", fatal=fatal, status=status, filtered=filtered
    )
    if passing and not fatal:
        fault.retry = True
        fault.retry_after = retry_after(headers, body)
    elif not fatal:
        fault.refused = 400 <= status < 500
    return fault


def provider_words(body: Any) -> str:
    """Return the message of an error in a body, parsed or a text."""
    if isinstance(body, dict):
        said = body.get("message") or body.get("detail") or body.get("error") or body
        code = str(body.get("code") or "")
        text = said if isinstance(said, str) else json.dumps(said, default=str)
        if code not in text:
            text += f" [{code}]"
        return brief(text)
    return brief(str(body))


def brief(text: str) -> str:
    """Shorten to one line of at most 400 characters, without markup, secrets and key shapes."""
    line = _KEY_SHAPE.sub("[key]", redact(" ".join(_MARKUP.sub(" ", text).split())))
    return line if len(line) <= _MAX_WORDS else line[: _MAX_WORDS - 1] + "…"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and its chain of causes, the first cause last."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__
