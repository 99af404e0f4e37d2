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

from pytest_skillopt.model.client import ChatModel
from pytest_skillopt.model.faults import (
    brief,
    classify,
    estimate_tokens,
    judge_status,
    provider_words,
)
from pytest_skillopt.model.types import (
    NO_KEY,
    Completion,
    ModelError,
    ModelFault,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_skillopt.model.config import ModelConfig
    from pytest_skillopt.model.limits import Throttle

_LARGEST_REQUEST = 64 << 20
_MARKS, _LEAST_MARK = 8, 12
_REFUSED = "refused"
_PATHS = re.compile(
    r"/v1(?:/(?P<messages>messages)|/(?P<chat>chat/completions)|/(?P<responses>responses(?:/compact)?)"
    r"|(?:beta|alpha)?(?P<gemini>/models/[^/:]+:(?:g|streamG)enerateContent))"
    r"|/v1(?P<count>/messages/count_tokens|(?:beta|alpha)?/models/[^/:]+:countTokens)"
)
"""The requests that are passed on, by protocol, and those for a count of tokens."""
_PASSED_ON = ("content-type", "accept", "user-agent", "openai-beta", "x-goog-api-client")
_OWN_KEY = {"gemini": "x-goog-api-key", "messages": "x-api-key"}
# A text inside of a JSON text has a backslash before each quotation mark: it cannot match these.
_END = re.compile(
    r'"(?:finish_reason|finishReason|stop_reason)":\s*"|"promptFeedback"'
    r'|"type":\s*"(?:message_stop|response\.completed|response\.incomplete)"'
)
"""What the last events of a streamed reply hold, whatever the protocol."""
_IN = ("input_tokens", "prompt_tokens", "promptTokenCount")
_IN_BESIDE = ("cache_read_input_tokens", "cache_creation_input_tokens")
_OUT = ("output_tokens", "completion_tokens", "candidatesTokenCount")
_OUT_BESIDE = ("thoughtsTokenCount",)
"""Counts of tokens. Each event of a reply repeats or raises those before. Anthropic counts what its
prompt cache has to do with apart, Gemini what a model thinks."""


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
        try:
            said = self._post(**request).decode(errors="replace")
            fault = _fault_in(said)
        except Exception as error:
            fault = classify(error)
            if fault is None:
                raise
            if fault.status == 400 and not fault.fatal:  # Such as a context that is too long.
                ticket.fault = ModelFault(f"{self.name}: {fault}")
                # What has a status came with a response.
                return Completion(error.response.text, finish_reason=_REFUSED)  # type: ignore[attr-defined]
        ticket.fault = fault and ModelFault(f"{self.name}: {fault}", fatal=fault.fatal)
        if fault is not None:
            ticket.lost(time.monotonic() - began)
            raise fault
        return Completion(said, usage=self._used(request["messages"], said))

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

    def _used(self, asked: str, said: str) -> Usage:
        def most(name: str) -> int:
            return max(map(int, re.findall(rf'"{name}":\s*(\d+)', said)), default=0)

        tokens_in = max(map(most, _IN)) + sum(map(most, _IN_BESIDE))
        tokens_out = max(map(most, _OUT)) + sum(map(most, _OUT_BESIDE))
        estimated = not (tokens_in or tokens_out)
        if estimated:
            tokens_in, tokens_out = estimate_tokens(asked), estimate_tokens(said)
        return self.config.usage(tokens_in, tokens_out, estimated=estimated)


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
        self._answer(200, {})

    def do_GET(self) -> None:
        """Agents ask which models there are: the one that is under test."""
        name = self.proxy.config.model
        one = {"id": name, "object": "model", "type": "model", "display_name": name, "created": 1}
        self._answer(200, {"object": "list", "data": [one], "has_more": False})

    def do_POST(self) -> None:
        raw, proxy = self._body(), self.proxy
        path, _, query = self.path.partition("?")
        _, name, rest = [*path.split("/", 2), "", ""][:3]
        ticket, found = proxy.tickets.get(name), _PATHS.fullmatch(f"/{rest}")
        if ticket is None or found is None:
            return self._refuse(404, "the proxy serves model calls of runs under way alone")
        try:
            body = {**json.loads(raw)}
        except (ValueError, TypeError):
            return self._refuse(400, "not a JSON object")
        speaks, path, model = str(found.lastgroup), found[0], proxy.config.model
        if speaks in ("gemini", "count"):  # The model and the agent's key are not in the body.
            path = re.sub(r"(?<=/models/)[^/:]+", lambda _: model, path)
            query = "&".join(p for p in query.split("&") if p and not p.startswith("key="))
        else:
            body["model"] = model
        if speaks == "chat" and body.get("stream"):
            body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        text = json.dumps(body)
        ticket.look(text)
        if speaks == "count":
            tokens = estimate_tokens(text)
            return self._answer(200, {"input_tokens": tokens, "totalTokens": tokens})
        path += f"?{query}" if query else ""
        with ticket.call() as allowed:
            if not allowed:
                return self._refuse(400, "this run may make no further call")
            try:
                proxy.served.ticket = ticket
                request = {"messages": text, "body": body, "speaks": speaks, "path": path}
                reply = proxy._pay("", request | {"headers": self.headers}, ticket.account)
                ticket.usage += reply.usage
                ticket.on_usage(reply.usage)
            except Exception as error:
                ticket.fail(error)
                return self._refuse(400, "the provider has failed, or a cap is reached")
        return self._answer(400 if reply.finish_reason == _REFUSED else 200, reply.text)

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
        streamed, body = text.lstrip().startswith(("event:", "data:", "id:", ":")), text.encode()
        self.send_response(status)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def marks_of(body: str, *known: str) -> tuple[str, ...]:
    """Lines of a skill's body, as in JSON, that tell in a request that it has been read: several,
    since a tool may have cut a part off; none that the model knows anyway."""
    lines = dict.fromkeys(line.strip() for line in body.splitlines())
    new = [line for line in lines if line and not any(line in text for text in known)]
    new.sort(key=len, reverse=True)
    best = [line for line in new if len(line) >= _LEAST_MARK][:_MARKS] or new[:1]
    return tuple(json.dumps(line)[1:-1] for line in best)


def _fault_in(said: str) -> ModelFault | None:
    """What is wrong with a reply of status 200: an object, a list of them, or events with data."""
    events: list[Any] = []
    for part in re.findall(r"^data:(.*)", said, re.MULTILINE) or [said]:
        with contextlib.suppress(ValueError):
            value = json.loads(part)
            events += value if isinstance(value, list) else [value]
    events = [event for event in events if isinstance(event, dict)]
    if not events:
        return ModelFault(f"unreadable reply: {brief(said) or 'empty'}", retry=True, answered=True)
    for event in events:
        error = event.get("error")
        if event.get("type") in ("error", "response.failed"):
            inner = event.get("response") or event
            error = inner.get("error") or inner
        if error:
            words = f"an error in place of the reply: {provider_words(error)}"
            judged = judge_status(500, error, {})
            return ModelFault(words, fatal=judged.fatal, retry=judged.retry)
    if "data:" in said and not _END.search(said):
        return ModelFault("the reply broke off", retry=True, answered=True)
    return None
