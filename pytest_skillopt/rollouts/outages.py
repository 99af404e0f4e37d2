"""Tell by an exception that a service or the machine has failed, whatever client a test uses."""

from __future__ import annotations

import errno
import signal
import socket
import ssl
import subprocess
from http.client import BadStatusLine, IncompleteRead
from typing import Any

_OVERLOADED = frozenset({408, 425, 429, 502, 503, 504, *range(520, 528), 529, 530})
"""HTTP statuses of an overloaded server or of a gateway: those from 520 are Cloudflare's, 529 is
Anthropic's. The test's own program may answer 500 because of a wrong answer."""
_LOST = (
    ConnectionError,
    TimeoutError,
    socket.gaierror,
    ssl.SSLError,
    IncompleteRead,
    BadStatusLine,
)
_LOST_ELSEWHERE = frozenset(
    (
        *(f"httpx.{name}" for name in ("NetworkError", "TimeoutException", "RemoteProtocolError")),
        *(
            f"requests.exceptions.{n}"
            for n in ("ConnectionError", "Timeout", "ChunkedEncodingError")
        ),
        *(f"aiohttp.client_exceptions.Client{n}Error" for n in ("Connection", "Payload")),
        "urllib3.exceptions.ProtocolError",
        "websockets.exceptions.ConnectionClosedError",
        "anthropic.InternalServerError",
        "google.genai.errors.ServerError",
    )
)
"""Full names of exceptions of clients that lost a connection, or of SDKs whose provider failed."""
_SHORTAGES = frozenset(
    getattr(errno, name)
    for name in (
        *("ENOSPC", "EDQUOT", "EROFS", "EIO", "ESTALE", "EMFILE", "ENFILE", "ENOMEM", "EAGAIN"),
        *("EHOSTUNREACH", "ENETUNREACH", "ENETDOWN", "EHOSTDOWN", "EADDRINUSE"),
    )
)
"""Numbers of system errors: a full or failing disk, no more files or processes, no network."""
_SENT_FROM_OUTSIDE = frozenset(
    -number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
)
"""Exit statuses of processes that a system short of memory, or the end of a job, has ended."""


def outage(exception: BaseException) -> str:
    """Return the kind of infrastructure error that an exception tells of, "" if of none.

    ``provider`` is a service that did not answer, ``setup`` a machine that cannot run the test.
    """
    if isinstance(exception, _LOST) or _status(exception) in _OVERLOADED:
        return "provider"
    if isinstance(exception, OSError) and exception.errno in _SHORTAGES:
        return "setup"
    if isinstance(exception, subprocess.CalledProcessError):
        return "setup" if exception.returncode in _SENT_FROM_OUTSIDE else ""
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(exception).__mro__}
    return "" if names.isdisjoint(_LOST_ELSEWHERE) else "provider"


def _status(exception: BaseException) -> Any:
    """Return the HTTP status of any client's exception, None if it has none."""
    response = getattr(exception, "response", None)
    for owner, name in (
        (exception, "status_code"),  # SDKs of providers
        (response, "status_code"),  # requests and httpx
        (exception, "status"),  # aiohttp
        (exception, "code"),  # urllib and Google's SDK
    ):
        status = getattr(owner, name, None)
        if isinstance(status, int):
            return status
    return None
