"""A scriptable OpenAI-compatible server on loopback, for tests that drive the real SDK."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence

PROBE = "Reply with the word OK."
"""Prompt by which the plugin sees whether a model is there."""


Body = dict[str, Any]
"""Body of a request."""


def system_of(body: Body) -> str:
    """Return the first message of a request: of a rollout the skill, else instructions."""
    return str(body["messages"][0]["content"])


def asked_in(body: Body) -> str:
    """Return the last message of a request."""
    return str(body["messages"][-1]["content"])


@dataclass(frozen=True)
class Answer:
    """Answer of the server to one request. The class methods make the usual ones."""

    text: str | None = "ok"
    status: int = 200
    finish_reason: str = "stop"
    tool_calls: tuple[tuple[str, str], ...] = ()
    """Name and arguments (JSON text) of each tool call."""
    usage: bool = True
    """Report token counts: a token for every word of the messages and of the reply."""
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: str | None = None
    """Sent as the body in place of a completion."""
    content_type: str = "application/json"
    drop: bool = False
    """Close the connection without an answer."""
    latency: float | None = None
    """Seconds before the answer; the server's own where None."""

    @classmethod
    def error(
        cls, status: int, message: str = "scripted", *, code: str = "", retry_after: str = ""
    ) -> Answer:
        """An error in the provider's form."""
        body = {"error": {"message": message, "type": "scripted", "param": None, "code": code}}
        headers = {"Retry-After": retry_after} if retry_after else {}
        return cls(status=status, raw=json.dumps(body), headers=headers)

    @classmethod
    def html(cls, status: int = 200) -> Answer:
        """The page of a proxy that stands before the provider."""
        page = "<html><head><title>Sign in</title></head><body><h1>Sign in</h1></body></html>"
        return cls(status=status, raw=page, content_type="text/html")

    @classmethod
    def garbage(cls) -> Answer:
        """A body that says it is JSON and is not."""
        return cls(raw='{"id": "cut of')

    @classmethod
    def dropped(cls) -> Answer:
        return cls(drop=True)

    @classmethod
    def empty(cls) -> Answer:
        return cls(text="")

    @classmethod
    def null_choices(cls) -> Answer:
        return cls(raw=json.dumps(_envelope("m", None, None)))

    @classmethod
    def truncated(cls, text: str = "half a sen") -> Answer:
        return cls(text=text, finish_reason="length")

    @classmethod
    def tool(cls, name: str, **arguments: Any) -> Answer:
        """One tool call."""
        return cls.tools((name, arguments))

    @classmethod
    def tools(cls, *calls: tuple[str, dict[str, Any]]) -> Answer:
        """Several tool calls in one reply."""
        made = tuple((name, json.dumps(arguments)) for name, arguments in calls)
        return cls(text=None, tool_calls=made, finish_reason="tool_calls")


@dataclass(frozen=True)
class Request:
    """A request as it arrived. ``headers`` has lower-case names."""

    path: str
    headers: Mapping[str, str]
    body: Body
    received: float
    """``time.monotonic()`` at arrival."""

    @property
    def last(self) -> str:
        """Content of the last message."""
        return asked_in(self.body)


class ChatServer:
    """Answers ``POST /v1/chat/completions``.

    The answers given to ``script`` come first, in order of arrival; then ``reply``, a function of
    the request's body that returns a text or an ``Answer``.
    """

    answer = Answer

    def __init__(self) -> None:
        self.reply: Callable[[Body], str | Answer] = lambda body: "ok"
        self.latency = 0.0
        """Seconds before every answer."""
        self.requests: list[Request] = []
        self.probes: list[Request] = []
        """The calls that only see whether the model is there; in none of the other counts."""
        self.probe: str | Answer | Callable[[Body], str | Answer] = "OK"
        """Answer to those calls, or a function of the request's body that returns it."""
        self.peak = 0
        """Most requests that were being answered at once."""
        self._scripted: deque[str | Answer] = deque()
        self._active = 0
        self._free = math.inf
        self._gate = threading.Event()
        self._lock = threading.Lock()
        self._http: _Http | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Base URL, as in ``skillopt_base_url``."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def calls(self) -> int:
        return len(self.requests)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self.requests]

    def script(self, *answers: str | Answer) -> None:
        """Queue answers for the next requests."""
        self._scripted.extend(answers)

    def hold(self, after: float) -> None:
        """Answer the calls that are held by now, but none to come beyond the first so many."""
        with self._lock:
            self._free, gate, self._gate = after, self._gate, threading.Event()
        gate.set()

    def release(self) -> None:
        """Answer the calls that are held, and all to come."""
        self.hold(math.inf)

    def start(self, tls: ssl.SSLContext | None = None) -> None:
        """Listen; again on the same port after ``stop``."""
        self._http = _Http(("127.0.0.1", self._port), self)
        if tls:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self._port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Go down, as a process that ends: no more connections, and those that are open end."""
        self.release()
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http.end_connections()
            self._http = None

    def _take(self, request: Request) -> Answer:
        if request.last.endswith(PROBE):
            self.probes.append(request)
            answer = self.probe(request.body) if callable(self.probe) else self.probe
            return Answer(text=answer) if isinstance(answer, str) else answer
        with self._lock:
            self.requests.append(request)
            self._active += 1
            self.peak = max(self.peak, self._active)
            gate = self._gate if len(self.requests) > self._free else None
            scripted = self._scripted.popleft() if self._scripted else None
        if gate is not None:
            gate.wait()
        answer = self.reply(request.body) if scripted is None else scripted
        return Answer(text=answer) if isinstance(answer, str) else answer

    def _leave(self, request: Request) -> None:
        with self._lock:
            self._active -= request.last != PROBE


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], owner: ChatServer) -> None:
        self.owner = owner
        self._connections: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """End all connections, those that clients keep for their next requests included."""
        for connection in tuple(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Http

    def do_POST(self) -> None:
        owner = self.server.owner
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.path, headers, body, time.monotonic())
        answer = owner._take(request)
        time.sleep(owner.latency if answer.latency is None else answer.latency)
        owner._leave(request)  # whoever has the answer may ask again before we go on here
        self._send(answer, body)

    def _send(self, answer: Answer, body: Body) -> None:
        if answer.drop:
            self.close_connection = True
            return
        text = answer.raw if answer.raw is not None else self._written(answer, body)
        data = text.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(data)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def _written(self, answer: Answer, body: Body) -> str:
        return json.dumps(_completion(answer, body))

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def _completion(answer: Answer, body: Body) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.tool_calls:
        message["tool_calls"] = [
            {"id": f"call_{i}", "type": "function", "function": {"name": n, "arguments": a}}
            for i, (n, a) in enumerate(answer.tool_calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason}
    usage = _usage(body["messages"], answer.text or "") if answer.usage else None
    return _envelope(body["model"], [choice], usage)


def _usage(messages: Sequence[dict[str, Any]], text: str) -> dict[str, int]:
    asked = sum(len(str(m.get("content") or "").split()) for m in messages)
    said = len(text.split())
    return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}


def _envelope(model: str, choices: Any, usage: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-test",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": choices,
        "usage": usage,
    }
