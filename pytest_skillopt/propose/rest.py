"""Calls of a REST interface: through urllib with a token, or through the program ``gh``.

Both only carry one call; :class:`Client` repeats what met a passing fault.
"""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pytest_skillopt.propose.errors import ProposeError
from pytest_skillopt.untrusted import printable, redact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TIMEOUT = 30.0
"""Seconds one call may take."""
ATTEMPTS = 5
MAX_WAIT = 90.0
"""Seconds that a call waits for a rate limit, all its attempts together."""
_MAX_REPLY = 16 * 1024 * 1024
_HEADERS = {
    "Accept": "application/vnd.github+json",
    "X-GitHub-Api-Version": "2022-11-28",
    "User-Agent": "pytest-skillopt",
}


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one call. ``status`` 0: none came, ``data`` says why."""

    status: int
    data: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""

    @property
    def message(self) -> str:
        """What the server says is wrong, in one line."""
        if not isinstance(self.data, dict):
            return _line(str(self.data or "no message"))
        errors = self.data.get("errors")
        rows = errors if isinstance(errors, list) else []
        parts = [self.data.get("message")]
        parts += [row.get("message") if isinstance(row, dict) else row for row in rows]
        return _line("; ".join(str(part) for part in parts if part) or "no message")


class Transport(Protocol):
    """Carries one call and never raises for what the server answers."""

    def send(self, method: str, path: str, payload: Any = None) -> Reply: ...


class NotFollowed(urllib.request.HTTPRedirectHandler):
    """urllib would repeat the token to wherever a redirect points."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class TokenTransport:
    """urllib. The token stands in a header, and nowhere else."""

    def __init__(self, base_url: str, token: str) -> None:
        self._base_url = base_url.rstrip("/")
        self._token = token
        self._opener = urllib.request.build_opener(NotFollowed)

    def send(self, method: str, path: str, payload: Any = None) -> Reply:
        request = urllib.request.Request(
            self._base_url + path,
            method=method,
            data=None if payload is None else json.dumps(payload).encode(),
            headers={**_HEADERS, "Authorization": f"Bearer {self._token}"},
        )
        if payload is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with self._opener.open(request, timeout=TIMEOUT) as response:
                return _reply(response.status, dict(response.headers), response.read(_MAX_REPLY))
        except urllib.error.HTTPError as error:
            with error:
                return _reply(error.code, dict(error.headers), error.read(_MAX_REPLY))
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            return Reply(0, str(getattr(error, "reason", error)) or type(error).__name__)


class GhTransport:
    """The program ``gh`` with the login it has; no token passes through our hands."""

    def __init__(self, host: str) -> None:
        self._host = host

    @staticmethod
    def found() -> bool:
        return shutil.which("gh") is not None

    def send(self, method: str, path: str, payload: Any = None) -> Reply:
        command = ["gh", "api", "--include", "--hostname", self._host, "--method", method]
        for name, value in _HEADERS.items():
            if name != "User-Agent":
                command += ["--header", f"{name}: {value}"]
        if payload is not None:
            command += ["--input", "-"]
        try:
            done = subprocess.run(
                [*command, path],
                input=b"" if payload is None else json.dumps(payload).encode(),
                capture_output=True,
                timeout=TIMEOUT,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Reply(0, f"gh: {error}")
        head, _, body = done.stdout.replace(b"\r\n", b"\n").partition(b"\n\n")
        status, *lines = head.decode("utf-8", "replace").split("\n")
        words = status.split()
        if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdigit():
            return Reply(0, done.stderr.decode("utf-8", "replace").strip() or "gh gave no answer")
        pairs = (line.partition(":") for line in lines)
        return _reply(int(words[1]), {k: v.strip() for k, _, v in pairs}, body)


class Client:
    """Repeats a call after a fault of the network or the server and when a rate limit says so.

    Args:
        transport: carries a call.
        sleep: waits so many seconds; default ``time.sleep``.
        clock: seconds since 1970; default ``time.time``.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        sleep: Callable[[float], None] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._transport = transport
        self._sleep = sleep or time.sleep
        self._clock = clock or time.time

    def call(self, method: str, path: str, payload: Any = None) -> Reply:
        """One call, repeated as needed. Answers of 2xx, 4xx other than limits are handed back.

        Raises:
            ProposeError: no answer that counts after all attempts, or a limit that lasts too long.
        """
        waited = 0.0
        for attempt in range(ATTEMPTS):
            reply = self._transport.send(method, path, payload)
            wait = self._wait(reply, attempt)
            if wait is None:
                return reply
            if attempt == ATTEMPTS - 1 or waited + wait > MAX_WAIT:
                raise ProposeError(_gave_up(reply, wait))
            waited += wait
            self._sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _wait(self, reply: Reply, attempt: int) -> float | None:
        """Seconds until the next attempt; None when the answer stands."""
        if _is_limit(reply):
            after = reply.headers.get("retry-after", "")
            if after.isdigit():
                return float(after)
            reset = reply.headers.get("x-ratelimit-reset", "")
            if reply.headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
                return max(float(reset) - self._clock(), 0.0) + 1.0
            return 60.0
        if reply.status == 0 or reply.status >= 500:
            return float(2**attempt)
        return None


def _is_limit(reply: Reply) -> bool:
    if reply.status == 429:
        return True
    spent = reply.headers.get("x-ratelimit-remaining") == "0" or "retry-after" in reply.headers
    return reply.status == 403 and (spent or "rate limit" in reply.message.lower())


def _gave_up(reply: Reply, wait: float) -> str:
    if _is_limit(reply):
        return (
            f"the forge's rate limit is used up for another {wait:.0f} s ({reply.message}): run "
            "this again later, it goes on where it stopped"
        )
    where = (
        "the forge did not answer" if reply.status == 0 else f"the forge answered {reply.status}"
    )
    return f"{where} ({reply.message}): run this again, it goes on where it stopped"


def _reply(status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    try:
        data = json.loads(body) if body.strip() else None
    except ValueError:
        data = body[:500].decode("utf-8", "replace")
    return Reply(status, data, {name.lower(): value for name, value in headers.items()})


def _line(text: str) -> str:
    return " ".join(printable(redact(text)).split())[:500]
