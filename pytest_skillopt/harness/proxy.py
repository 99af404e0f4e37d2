"""A loopback proxy between agents and their provider, one a process.

Each run opens a ticket, the first part of the path in its base URL. The key stays here. A reply is
passed on once it is whole, so that a fault can be met with another try, and no agent's own retries
or words decide what was a fault.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from pytest_skillopt.harness import protocols
from pytest_skillopt.harness.upstream import Ended
from pytest_skillopt.model.types import CapReached, ModelError, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_skillopt.harness.upstream import Answer, Upstream
    from pytest_skillopt.model.faults import Fault

_LARGEST_REQUEST = 64 << 20
_MARKS = 8
_LEAST_MARK = 12
"""Characters of a line that may tell that the skill's body was in a request."""


class Ticket:
    """What one run asks of its provider, and what is known of it. A ``processes.Watch``.

    Args:
        marks: texts of which each tells, in a request, that the skill's body has been read.
        account: role, stage and task.
        most_calls: paid calls after which the run is ended; 0: as many as it wants.
        stop_when_read: end the run as soon as the skill's body has been read.
        on_usage: told what each call used.
    """

    def __init__(
        self,
        marks: Iterable[str] = (),
        *,
        account: tuple[str, str, str] = ("target", "", ""),
        most_calls: int = 0,
        stop_when_read: bool = False,
        on_usage: Callable[[Usage], None] | None = None,
    ) -> None:
        self.name = secrets.token_urlsafe(12)
        self.account = account
        self.usage = Usage()
        self.calls = 0
        """Paid calls that were begun."""
        self.skill_read = False
        self.out_of_calls = False
        self.failure: ModelError | None = None
        """Why no further call can be answered."""
        self.fault: Fault | None = None
        """What the last call ended in, where it was no reply."""
        self._marks = tuple(marks)
        self._most_calls = most_calls
        self._stop_when_read = stop_when_read
        self._on_usage = on_usage
        self._over = threading.Event()
        self._lost = 0.0
        self._pending: dict[object, float] = {}
        self._lock = threading.Lock()
        self.alarm, self._bell = os.pipe()

    def lost(self) -> float:
        with self._lock:
            return self._lost

    def pending(self) -> bool:
        with self._lock:
            return bool(self._pending)

    def close(self) -> None:
        """The run is over: nobody waits for replies any more."""
        self._over.set()
        with self._lock:
            for number in (self.alarm, self._bell):
                with contextlib.suppress(OSError):
                    os.close(number)
            self.alarm = self._bell = -1

    def look(self, body: Any) -> None:
        """Look for the skill's body in a request."""
        if self._marks and not self.skill_read:
            self.skill_read = any(m in text for text in protocols.texts(body) for m in self._marks)
            if self.skill_read and self._stop_when_read:
                self._ring()

    def admit(self) -> bool:
        """Begin a paid call; False where the run may make none."""
        with self._lock:
            known = self._stop_when_read and self.skill_read
            if self.failure or self.out_of_calls or self._over.is_set() or known:
                return False
            if not self._most_calls or self.calls < self._most_calls:
                self.calls += 1
                return True
            self.out_of_calls = True
        self._ring()
        return False

    @contextlib.contextmanager
    def under_way(self) -> Any:
        """While a call is under way, the run is not ended for its time."""
        me = object()
        with self._lock:
            self._pending[me] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._pending[me]

    def wait(self, seconds: float) -> None:
        """Sleep on behalf of the run; raises ``Ended`` when it is over."""
        if self._over.wait(seconds):
            raise Ended

    def tried(self, seconds: float, lost: bool) -> None:
        """A try took so many seconds; those of a fault are not the agent's."""
        with self._lock:
            self._lost += seconds if lost else 0.0

    def answered(self, answer: Answer) -> None:
        """A call has its last answer."""
        with self._lock:
            self.usage += answer.usage
            self.fault = answer.fault
        if self._on_usage is not None and answer.usage != Usage():
            self._on_usage(answer.usage)

    def fail(self, failure: ModelError) -> None:
        """No further call of this run can be answered."""
        with self._lock:
            self.failure = self.failure or failure
        self._ring()

    def _ring(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            if self._bell >= 0:
                os.write(self._bell, b"!")


class Proxy:
    """The server. It listens on 127.0.0.1 and knows nobody without a ticket."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self._tickets: dict[str, Ticket] = {}
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        threading.Thread(
            target=self._server.serve_forever, name="skillopt-proxy", daemon=True
        ).start()

    @contextlib.contextmanager
    def serving(self, ticket: Ticket) -> Any:
        """While open, the ticket's base URL answers; yields that URL."""
        self._tickets[ticket.name] = ticket
        try:
            yield f"http://127.0.0.1:{self._server.server_port}/{ticket.name}"
        finally:
            del self._tickets[ticket.name]
            ticket.close()

    def ticket(self, name: str) -> Ticket | None:
        return self._tickets.get(name)

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
        if not self.path.partition("?")[0].rstrip("/").endswith("/models"):
            self._refuse(404, "the proxy serves model calls alone")
            return
        name = self.proxy.upstream.config.model
        one = {"id": name, "object": "model", "type": "model", "display_name": name, "created": 1}
        models = {"object": "list", "data": [one], "has_more": False}
        self._answer(200, "application/json", json.dumps(models).encode())

    def do_POST(self) -> None:
        raw = self._body()
        path, _, query = self.path.partition("?")
        _, name, *rest = path.split("/", 2)
        ticket = self.proxy.ticket(name)
        upstream = self.proxy.upstream
        request = protocols.recognise("/" + "".join(rest), upstream.config.model)
        if ticket is None or request is None:
            return self._refuse(404, "the proxy serves model calls alone, of runs under way")
        try:
            body = json.loads(raw)
            body = protocols.with_model(request, body, upstream.config.model)
        except (ValueError, TypeError):
            return self._refuse(400, "not a JSON object")
        ticket.look(body)
        if request.paid and not ticket.admit():
            return self._refuse(400, "this run may make no further call")
        query = "&".join(p for p in query.split("&") if p and not p.startswith("key="))
        try:
            with ticket.under_way():
                answer = upstream.send(
                    request,
                    body,
                    dict(self.headers.items()),
                    query,
                    ticket.account,
                    ticket.wait,
                    ticket.tried,
                )
        except Ended:
            self.close_connection = True
            return None
        except CapReached as cap:
            ticket.fail(cap)
            return self._refuse(400, "a spending cap is reached")
        except Exception as error:
            ticket.fail(upstream.failure_of(error))
            return self._refuse(400, "the proxy has failed")
        return self._pass_on(ticket, request, answer)

    def _pass_on(self, ticket: Ticket, request: protocols.Request, answer: Answer) -> None:
        if request.paid:
            ticket.answered(answer)
        fault = answer.fault
        if fault is not None and (fault.fatal or fault.retry) and request.paid:
            ticket.fail(self.proxy.upstream.failure(fault, answer.tries))
            return self._refuse(400, "the provider has failed")
        # Any other refusal is the agent's to deal with, such as a context that is too long.
        return self._answer(answer.status, answer.kind, answer.body)

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


def marks_of(body: str, known: Iterable[str]) -> list[str]:
    """Lines of a skill's body that tell, in a request, that it has been read.

    The longest ones, several, since a tool may have cut a part off; none that stands in a text
    the model knows anyway.

    Args:
        body: of the skill, without its frontmatter.
        known: the description, the prompt and the like.
    """
    elsewhere = "\n".join(known)
    lines = dict.fromkeys(line.strip() for line in body.splitlines())
    found = sorted((n for n in lines if n and n not in elsewhere), key=len, reverse=True)
    long = [line for line in found if len(line) >= _LEAST_MARK]
    return (long or found[:1])[:_MARKS]
