"""The way from agents to their provider: a loopback proxy, one a process, which keeps the key.

Each run opens a ticket, the first part of the path in its base URL. A reply is passed on once it is
whole: no agent's own retries or words decide what was a fault.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from pytest_skillopt.addons.harness.protocols import read_reply
from pytest_skillopt.model.client import ChatModel
from pytest_skillopt.model.faults import classify, estimate_tokens
from pytest_skillopt.model.types import (
    NO_KEY,
    Completion,
    ModelError,
    ModelFault,
    Usage,
)
from pytest_skillopt.untrusted import encodable, logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_skillopt.model.config import ModelConfig
    from pytest_skillopt.model.limits import Throttle

_LOG = logger(__name__)
_LARGEST_REQUEST = 64 << 20
_MARKS, _LEAST_MARK = 8, 12
_REFUSED = "refused"
_NOT_SERVED = "the proxy serves runs under way only, and only their model calls"
_PATHS = re.compile(
    r"/v1(?:/(?P<messages>messages)|/(?P<chat>chat/completions)|/(?P<responses>responses(?:/compact)?)"
    r"|(?:beta|alpha)?(?P<gemini>/models/[^/:]+:(?:g|streamG)enerateContent))"
    r"|/v1(?P<count>/messages/count_tokens|(?:beta|alpha)?/models/[^/:]+:countTokens)"
)
"""The requests that are passed on, by protocol, and those for a count of tokens."""
_PASSED_ON = ("content-type", "accept", "user-agent", "openai-beta", "x-goog-api-client")
_OWN_KEY = {"gemini": "x-goog-api-key", "messages": "x-api-key"}
_SEVERAL = ("n", "candidateCount", "candidate_count")
_SETTINGS = ("generationConfig", "generation_config")


@dataclass(eq=False)
class Ticket:
    """What one run asks of its provider, and what is known of it.

    Args:
        marks: see ``marks_of``; with ``stop_when_read`` the run is ended once one is seen.
        account: role, stage and task.
        most_calls: after which the run is ended; 0: as many as it wants.
    """

    marks: tuple[str, ...] = ()
    account: tuple[str, str, str] = ("target", "", "")
    most_calls: int = 0
    stop_when_read: bool = False
    on_usage: Callable[[Usage], None] = lambda usage: None
    calls: int = 0
    usage: Usage = Usage()
    skill_read: bool = False
    out_of_calls: bool = False
    failure: Exception | None = None  # why no further call can be answered
    fault: ModelFault | None = None  # what the last call ended in, where it was no reply
    name: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    over: threading.Event = field(default_factory=threading.Event)
    stopped: bool = False  # the run is to be ended
    _lost: float = 0.0
    _pending: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def lost(self, more: float = 0.0) -> float:
        """Seconds that the infrastructure has cost the run; infinite while a call is under way, of
        which nobody knows yet how it ends."""
        with self._lock:
            self._lost += more
            return float("inf") if self._pending else self._lost

    def wait(self, seconds: float) -> None:
        """Sleep on behalf of the run; that time is lost. ModelFault once it has ended."""
        if self.over.wait(seconds):
            raise ModelFault("the run has ended")
        self.lost(seconds)

    def look(self, text: str) -> None:
        """Look for the skill's body in a request, which is JSON."""
        self.skill_read = self.skill_read or any(mark in text for mark in self.marks)
        self.stopped = self.stopped or (self.skill_read and self.stop_when_read)

    @contextlib.contextmanager
    def call(self) -> Iterator[bool]:
        """While a call is under way; yields whether it may be made."""
        with self._lock:
            enough = self.stop_when_read and self.skill_read
            allowed = not (self.failure or enough or self.over.is_set())
            if allowed and 0 < self.most_calls <= self.calls:
                self.out_of_calls, self.stopped, allowed = True, True, False
            self.calls += allowed
            self._pending += allowed
        try:
            yield allowed
        finally:
            with self._lock:
                self._pending -= allowed

    def count(self, used: Usage) -> None:
        self.usage += used
        self.on_usage(used)

    def fail(self, error: Exception) -> None:
        """No further call of this run can be answered."""
        if not self.over.is_set():  # else nobody asks any more
            known = isinstance(error, ModelError)
            error = error if known else ModelFault(f"{type(error).__name__}: {error}")
            self.failure, self.stopped = self.failure or error, True


class Proxy(ChatModel):
    """The target's client, which sends what agents have written: a server that listens on 127.0.0.1
    and knows nobody without a ticket. ``throttle`` is whom ``skill_agent`` asks, too."""

    def __init__(self, config: ModelConfig, throttle: Throttle) -> None:
        super().__init__(config, throttle=throttle, sleep=lambda s: self.served.ticket.wait(s))
        self.throttle = throttle
        self.tickets: dict[str, Ticket] = {}
        self.served = threading.local()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        # Closing takes as long as a look.
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @contextlib.contextmanager
    def serving(self, ticket: Ticket) -> Iterator[str]:
        """While open, the base URL that it yields answers."""
        self.tickets[ticket.name] = ticket
        try:
            yield f"http://127.0.0.1:{self._server.server_port}/{ticket.name}"
        finally:
            del self.tickets[ticket.name]
            ticket.over.set()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        super().close()

    def _send(self, request: dict[str, Any]) -> Completion:
        began, ticket = time.monotonic(), self.served.ticket
        asked, said, used = request["messages"], "", Usage()
        try:
            said = self._post(**request).decode(errors="replace")
            found = read_reply(request["speaks"], said, asked)
            used = self.config.usage(found.asked, found.said, estimated=found.estimated)
            fault = found.fault
        except Exception as error:
            fault = classify(error)
            if fault is None:
                raise
            if fault.status == 200:  # It broke off, and may have been paid for.
                used = self.config.usage(estimate_tokens(asked), 0, estimated=True)
            if fault.status == 400 and not fault.fatal:  # Such as a context that is too long.
                ticket.fault = ModelFault(f"{self.name}: {fault}")
                # What has a status came with a response.
                return Completion(error.response.text, finish_reason=_REFUSED)  # type: ignore[attr-defined]
        ticket.fault = fault and ModelFault(f"{self.name}: {fault}", fatal=fault.fatal)
        if fault is not None:
            ticket.lost(time.monotonic() - began)
            fault.usage = used
            raise fault
        return Completion(said, usage=used)

    def _post(
        self, messages: str, body: dict[str, Any], speaks: str, path: str, headers: Any
    ) -> bytes:
        import openai

        given = {name.lower(): value for name, value in headers.items()}
        sent = {n: v for n, v in given.items() if n in _PASSED_ON or n.startswith("anthropic-")}
        client, own = self._client(), _OWN_KEY.get(speaks, "")
        if self.config.key_command:
            self._key, own = self.config.api_key(), ""
        sent["Authorization"] = openai.Omit() if own else f"Bearer {self._key}"
        if own and self._key != NO_KEY:
            sent[own] = self._key
        if speaks in ("chat", "responses"):
            path = path.removeprefix("/v1")
        else:
            base_url = re.sub("(/openai|/v1|/v1beta)*/?$", "", str(client.base_url), count=1)
            path = base_url + path
        options = {"headers": sent | self._headers}
        found: bytes = client.post(path, cast_to=bytes, body=body, options=options)
        return found


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: Proxy

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        """Agents ask which models there are: the one that is under test."""
        if self._addressed()[0] is None:
            return self._refuse(404, _NOT_SERVED)
        name = self.proxy.config.model
        one = {"id": name, "object": "model", "type": "model", "display_name": name, "created": 1}
        return self._answer(200, {"object": "list", "data": [one], "has_more": False})

    def do_POST(self) -> None:
        raw, proxy = self._body(), self.proxy
        ticket, rest, query = self._addressed()
        found = _PATHS.fullmatch(rest)
        if ticket is None or found is None:
            return self._refuse(404, _NOT_SERVED)
        try:
            body = _request(raw)
        except (ValueError, TypeError, RecursionError) as error:
            return self._refuse(400, f"not a request of one reply in JSON: {error}")
        speaks, path, model = str(found.lastgroup), found[0], proxy.config.model
        if speaks in ("gemini", "count"):  # The model and the agent's key are not in the body.
            path = re.sub(r"(?<=/models/)[^/:]+", lambda _: model, path)
            query = "&".join(p for p in query.split("&") if p and not p.startswith("key="))
        else:
            body["model"] = model
        if speaks == "chat" and body.get("stream"):
            options = body.get("stream_options")
            options = options if isinstance(options, dict) else {}
            body["stream_options"] = {**options, "include_usage": True}
        text = json.dumps(body)
        ticket.look(text)
        if speaks == "count":
            tokens = estimate_tokens(text)
            return self._answer(200, {"input_tokens": tokens, "totalTokens": tokens})
        path += f"?{query}" if query else ""
        with ticket.call() as allowed:
            if not allowed:
                _LOG.info("an agent in %s may make no further call", ticket.account[2])
                return self._refuse(400, "this run may make no further call")
            try:
                proxy.served.ticket = ticket
                request = {"messages": text, "body": body, "speaks": speaks, "path": path}
                reply = proxy._pay("", request | {"headers": self.headers}, ticket.account)
                ticket.count(reply.usage)
            except Exception as error:
                if isinstance(error, ModelFault):
                    ticket.count(error.usage)
                _LOG.warning("a call of an agent in %s has failed: %s", ticket.account[2], error)
                ticket.fail(error)
                return self._refuse(400, "the provider has failed, or a cap is reached")
        return self._answer(400 if reply.finish_reason == _REFUSED else 200, reply.text)

    def _addressed(self) -> tuple[Ticket | None, str, str]:
        """The run that asks, if it is under way, and the path and query of what it asks for."""
        path, _, query = self.path.partition("?")
        _, name, rest = [*path.split("/", 2), "", ""][:3]
        return self.proxy.tickets.get(name), f"/{rest}", query

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            size = int(self.headers.get("content-length") or 0)
            return self.rfile.read(min(size, _LARGEST_REQUEST))
        whole = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            whole += self.rfile.read(size + 2)[:size]
        self.rfile.readline()
        return whole

    def _refuse(self, status: int, words: str) -> None:
        error = {"type": "invalid_request_error", "message": words}
        self._answer(status, {"type": "error", "error": error})

    def _answer(self, status: int, said: str | dict[str, Any]) -> None:
        text = said if isinstance(said, str) else json.dumps(said)
        streamed = status == 200 and text.lstrip()[:1] not in ("{", "[")
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _request(raw: bytes) -> dict[str, Any]:
    """The object of a request; ValueError, TypeError or RecursionError where it cannot be sent on,
    or would have more than one reply, or one that comes later, paid for."""
    body = {**json.loads(raw)}
    text = json.dumps(body, ensure_ascii=False, allow_nan=False)
    if not text.isascii():
        body = json.loads(encodable(text))
    settings = [body, *(body.get(name) for name in _SETTINGS)]
    several = any(
        part.get(name) not in (None, 1)
        for part in settings
        if isinstance(part, dict)
        for name in _SEVERAL
    )
    if several or body.get("background"):
        raise ValueError(f"{', '.join(_SEVERAL)} must be 1, background false")
    return body


def marks_of(body: str, *known: str) -> tuple[str, ...]:
    """Lines of a skill's body, as in JSON, that tell in a request that it has been read: several,
    since a tool may have cut a part off; none that the model knows anyway."""
    lines = dict.fromkeys(line.strip() for line in body.split("\n"))
    new = [line for line in lines if line and not any(line in text for text in known)]
    new.sort(key=len, reverse=True)
    best = [line for line in new if len(line) >= _LEAST_MARK][:_MARKS] or new[:1]
    return tuple(json.dumps(line)[1:-1] for line in best)
