"""A loopback proxy between agents and their provider, one a process.

Each run opens a ticket, the first part of the path in its base URL. The key stays here. A reply is
passed on once it is whole, so that a fault can be met with another try, and no agent's own retries
or words decide what was a fault.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from pytest_skillopt.harness.upstream import Request
from pytest_skillopt.model.faults import Fault
from pytest_skillopt.model.types import CapReached, ModelError, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_skillopt.harness.upstream import Answer, Upstream

_LARGEST_REQUEST = 64 << 20
_MARKS, _LEAST_MARK = 8, 12
_PATHS = re.compile(
    r"/v1(?:/(?P<messages>messages(?:/count_tokens)?)|/(?P<chat>chat/completions)"
    r"|/(?P<responses>responses(?:/compact)?)|(?:beta|alpha)?(?P<gemini>/models/[^/:]+"
    r":(?:generateContent|streamGenerateContent|countTokens)))"
)
"""The requests that are passed on, by protocol."""


class RunOver(Exception):
    """The run that asked has ended: nobody waits for the reply."""


@dataclass(eq=False)
class Ticket:
    """What one run asks of its provider, and what is known of it. A ``processes.Watch``."""

    marks: tuple[str, ...] = ()
    """Texts of which each tells, in a request, that the skill's body has been read."""
    account: tuple[str, str, str] = ("target", "", "")
    """Role, stage and task."""
    most_calls: int = 0
    """Paid calls after which the run is ended; 0: as many as it wants."""
    stop_when_read: bool = False
    """End the run as soon as the skill's body has been read."""
    on_usage: Callable[[Usage], None] = lambda usage: None
    calls: int = 0
    """Paid calls that were begun."""
    usage: Usage = Usage()
    skill_read: bool = False
    out_of_calls: bool = False
    failure: ModelError | None = None
    """Why no further call can be answered."""
    fault: Fault | None = None
    """What the last call ended in, where it was no reply."""
    name: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    _lost: float = 0.0
    _pending: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.alarm, self._bell = os.pipe()

    def lost(self) -> float:
        """As a ``Watch``: how a call ends that is under way is not known yet."""
        return float("inf") if self._pending else self._lost

    def lose(self, seconds: float) -> None:
        """So many seconds were lost to the infrastructure."""
        with self._lock:
            self._lost += seconds

    def wait(self, seconds: float) -> None:
        """Sleep on behalf of the run; that time is lost.

        Raises:
            RunOver: it has ended.
        """
        if self._over.wait(seconds):
            raise RunOver
        self.lose(seconds)

    def look(self, body: Any) -> None:
        """Look for the skill's body in a request."""
        if self.marks and not self.skill_read:
            self.skill_read = any(m in text for text in _texts(body) for m in self.marks)
            if self.skill_read and self.stop_when_read:
                self._ring()

    @contextlib.contextmanager
    def call(self, *, paid: bool) -> Iterator[bool]:
        """While a call is under way; yields whether it may be made."""
        with self._lock:
            known = self.stop_when_read and self.skill_read
            allowed = not (self.failure or known or self._over.is_set())
            if paid and allowed:
                self.out_of_calls = 0 < self.most_calls <= self.calls
                allowed = not self.out_of_calls
                self.calls += allowed
            self._pending += allowed
        if self.out_of_calls:
            self._ring()
        try:
            yield allowed
        finally:
            with self._lock:
                self._pending -= allowed

    def answered(self, answer: Answer) -> None:
        """A paid call has its last answer."""
        with self._lock:
            self.usage += answer.usage
            self.fault = answer.fault
        if answer.fault is None:
            self.on_usage(answer.usage)

    def fail(self, failure: ModelError) -> None:
        """No further call of this run can be answered."""
        self.failure = self.failure or failure
        self._ring()

    def _ring(self) -> None:
        with self._lock:
            if not self._over.is_set():
                os.write(self._bell, b"!")

    def close(self) -> None:
        """The run is over."""
        with self._lock:
            self._over.set()
            os.close(self.alarm)
            os.close(self._bell)


class Proxy:
    """The server. It listens on 127.0.0.1 and knows nobody without a ticket."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.tickets: dict[str, Ticket] = {}
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        serve = self._server.serve_forever
        threading.Thread(target=serve, name="skillopt-proxy", daemon=True).start()

    @contextlib.contextmanager
    def serving(self, ticket: Ticket) -> Iterator[str]:
        """While open, the ticket's base URL answers; yields that URL."""
        self.tickets[ticket.name] = ticket
        try:
            yield f"http://127.0.0.1:{self._server.server_port}/{ticket.name}"
        finally:
            del self.tickets[ticket.name]
            ticket.close()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self.upstream.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An agent that was ended leaves its connection behind: nothing to tell."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: Proxy

    def log_message(self, *args: Any) -> None:
        """Nothing is written to the terminal of a test session."""

    def do_HEAD(self) -> None:
        self._answer(200, "text/plain", b"")

    def do_GET(self) -> None:
        """Agents ask which models there are: the one that is under test."""
        name = self.proxy.upstream.config.model
        one = {"id": name, "object": "model", "type": "model", "display_name": name, "created": 1}
        models = {"object": "list", "data": [one], "has_more": False}
        self._answer(200, "application/json", json.dumps(models).encode())

    def do_POST(self) -> None:
        raw = self._body()
        path, _, query = self.path.partition("?")
        _, name, rest = [*path.split("/", 2), "", ""][:3]
        ticket, found = self.proxy.tickets.get(name), _PATHS.fullmatch(f"/{rest}")
        if ticket is None or found is None:
            return self._refuse(404, "the proxy serves model calls of runs under way alone")
        try:
            request = self._request(found, query, json.loads(raw))
        except (ValueError, TypeError):
            return self._refuse(400, "not a JSON object")
        ticket.look(request.body)
        upstream = self.proxy.upstream
        with ticket.call(paid=request.paid) as allowed:
            if not allowed:
                return self._refuse(400, "this run may make no further call")
            try:
                answer = upstream.send(request, ticket)
            except RunOver:
                self.close_connection = True
                return None
            except CapReached as cap:
                ticket.fail(cap)
                return self._refuse(400, "a spending cap is reached")
            except Exception as error:
                ticket.fail(upstream.failure(Fault(f"{type(error).__name__}: {error}")))
                return self._refuse(400, "the proxy has failed")
            if request.paid:
                ticket.answered(answer)
            fault = answer.fault
            if request.paid and fault is not None and (fault.fatal or fault.status != 400):
                ticket.fail(upstream.failure(fault, answer.tries))
                return self._refuse(400, "the provider has failed")
        # A request that is refused is the agent's to mend, such as a context that is too long.
        return self._answer(answer.status, answer.kind, answer.body)

    def _request(self, found: re.Match[str], query: str, body: dict[str, Any]) -> Request:
        """The request, for the model that is under test, with the wish to be told its tokens."""
        speaks, path, model = str(found.lastgroup), found[0], self.proxy.upstream.config.model
        if speaks == "gemini":
            path = re.sub(r"(?<=/models/)[^/:]+", lambda _: model, path)
        else:
            body = {**body, "model": model}
        if speaks == "chat" and body.get("stream"):
            body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        query = "&".join(part for part in query.split("&") if not part.startswith("key="))
        paid = not path.lower().endswith(("count_tokens", "counttokens"))
        return Request(speaks, path, query, dict(self.headers.items()), body, paid)

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            size = int(self.headers.get("content-length") or 0)
            return self.rfile.read(min(size, _LARGEST_REQUEST))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0].strip() or b"0", 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _refuse(self, status: int, message: str) -> None:
        error = {"type": "invalid_request_error", "message": message}
        body = {"type": "error", "error": error}
        self._answer(status, "application/json", json.dumps(body).encode())

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def marks_of(body: str, *known: str) -> tuple[str, ...]:
    """Lines of a skill's body that tell, in a request, that it has been read.

    The longest ones, several, since a tool may have cut a part off; none that stands in a text
    the model knows anyway: the description, the prompt.
    """
    lines = dict.fromkeys(line.strip() for line in body.splitlines())
    new = [line for line in lines if line and not any(line in text for text in known)]
    new.sort(key=len, reverse=True)
    return tuple([line for line in new if len(line) >= _LEAST_MARK][:_MARKS] or new[:1])
