"""Loopback proxy between agents and their provider; only the proxy knows the API key.

There is one proxy for each process. Each run has a secret name, the first part of the path in its
base URL. A reply is passed on only when it is complete, so faults are detected here, whatever an
agent retries or reports.
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
from typing import TYPE_CHECKING, Any, BinaryIO

from pytest_skillopt.model.client import Client
from pytest_skillopt.model.config import OPENAI_URL
from pytest_skillopt.model.faults import classify
from pytest_skillopt.model.tokens import Tokens, estimate_tokens
from pytest_skillopt.model.types import (
    NO_KEY,
    Completion,
    ModelConfigError,
    ModelError,
    ModelFault,
    Usage,
)
from pytest_skillopt.plugins.agents.known import installed
from pytest_skillopt.plugins.agents.protocols import read_reply
from pytest_skillopt.untrusted import encodable, logger, parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_skillopt.model.client import Request
    from pytest_skillopt.model.config import ModelConfig
    from pytest_skillopt.model.limits import Throttle
    from pytest_skillopt.model.types import Account
    from pytest_skillopt.plugins.agents.known import Harness
    from pytest_skillopt.plugins.agents.run import RunEnd

_LOG = logger(__name__)
_LARGEST_REQUEST, _LEAST_CHUNK = 64 << 20, 1_000  # bytes; a smaller chunk counts as that many
_MOST_THREADS, _MOST_AT_ONCE = 512, 64
"""Threads of the session, of which each connection takes one, and calls that one run may have under
way."""
MARKS, _LEAST_MARK = 8, 12
_REFUSED = "refused"
_NOT_SERVED = "the proxy serves only current runs, and only their model calls"
_PATHS = re.compile(
    r"/v1(?:/(?P<messages>messages)|/(?P<chat>chat/completions)|/(?P<responses>responses(?:/compact)?)"
    r"|(?:beta|alpha)?(?P<gemini>/models/[^/:]+:(?:g|streamG)enerateContent))"
    r"|/v1(?P<count>/messages/count_tokens|(?:beta|alpha)?/models/[^/:]+:countTokens)"
)
"""Paths of requests to pass on, by protocol, and of requests to count tokens."""
_PASSED_ON = ("content-type", "accept", "user-agent", "openai-beta", "x-goog-api-client")
_OWN_KEY = {"gemini": "x-goog-api-key", "messages": "x-api-key"}
_SEVERAL = ("n", "candidateCount", "candidate_count")
_SETTINGS = ("generationConfig", "generation_config")
_OTHERS = ("models", "fallbacks")
"""Fields in which some servers take further models."""


@dataclass(eq=False)
class AgentCalls:
    """Model calls of one run: their limits and results."""

    marks: tuple[str, ...] = ()
    """Texts that show that the skill was read: see ``marks_of``."""
    account: Account = ("target", "", "")
    """Role, stage and task."""
    most_calls: int = 0
    """Calls after which the run is ended; 0: no limit."""
    stop_when_read: bool = False
    """Whether to end the run once the skill was read."""
    on_usage: Callable[[Usage], None] = lambda usage: None
    calls: int = 0
    usage: Usage = Usage()
    skill_read: bool = False
    out_of_calls: bool = False
    failure: Exception | None = None  # reason to refuse all further calls
    fault: ModelFault | None = None  # error of the last call, if it had no reply
    name: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    over: threading.Event = field(default_factory=threading.Event)
    _lost: float = 0.0
    _pending: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def stopped(self) -> bool:
        """Whether the run should be ended."""
        is_known = self.stop_when_read and self.skill_read
        return is_known or self.out_of_calls or self.failure is not None

    @property
    def lost(self) -> float:
        """Seconds lost to the infrastructure; infinite during a call, whose end is not known."""
        with self._lock:
            return float("inf") if self._pending else self._lost

    def lose(self, seconds: float) -> None:
        """Count seconds that were lost to the infrastructure."""
        with self._lock:
            self._lost += seconds

    def wait(self, seconds: float) -> None:
        """Sleep and count the time as lost; ModelFault if the run ends meanwhile."""
        if self.over.wait(seconds):
            raise ModelFault("the run has ended")
        self.lose(seconds)

    def look(self, text: str) -> None:
        """Search a request (JSON) for the body of the skill."""
        self.skill_read = self.skill_read or any(mark in text for mark in self.marks)

    @contextlib.contextmanager
    def call(self) -> Iterator[bool]:
        """Count a call while it is made; yield whether it is allowed."""
        with self._lock:
            many = self._pending >= _MOST_AT_ONCE
            allowed = not (self.stopped or many or self.over.is_set())
            if allowed and 0 < self.most_calls <= self.calls:
                self.out_of_calls = True
                allowed = False
            self.calls += allowed
            self._pending += allowed
        try:
            yield allowed
        finally:
            with self._lock:
                self._pending -= allowed

    def follow(self, out: BinaryIO) -> None:
        """Look at an agent's output so far: not needed here, since the proxy sees its calls."""

    def count(self, used: Usage) -> None:
        self.usage += used
        self.on_usage(used)

    def fail(self, error: Exception) -> None:
        """Count what a fault took, and refuse all further calls of this run."""
        if isinstance(error, ModelFault):
            self.count(error.usage)
        if not self.over.is_set():  # an ended run makes no further call
            known = isinstance(error, ModelError)
            error = error if known else ModelFault(f"{type(error).__name__}: {error}")
            self.failure = self.failure or error


class Proxy:
    """Server on 127.0.0.1 that passes the requests of current runs on to the target's provider.

    ``throttle`` is shared with ``skill_agent``.
    """

    def __init__(self, config: ModelConfig, throttle: Throttle) -> None:
        self.config = config
        self.throttle = throttle
        self.model = config.model
        self.upstream = _Upstream(config, throttle)
        self.served: dict[str, AgentCalls] = {}
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        # Closing takes one poll interval.
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @contextlib.contextmanager
    def serving(self, agent_calls: AgentCalls) -> Iterator[str]:
        """Serve a run and yield its base URL."""
        self.served[agent_calls.name] = agent_calls
        try:
            yield f"http://127.0.0.1:{self._server.server_port}/{agent_calls.name}"
        finally:
            del self.served[agent_calls.name]
            agent_calls.over.set()

    def find(self, name: str) -> Harness:
        """Find a harness; ModelConfigError if the server lacks its protocol."""
        harness = installed(name)
        if self.config.base_url == OPENAI_URL and harness.speaks in ("messages", "gemini"):
            raise ModelConfigError(
                f"{name} cannot use {OPENAI_URL}: set a server with its protocol, as in "
                "skillopt_target = openai:MODEL@URL, and the variable that holds its key, as in "
                "'target.key_env = VARIABLE' in skillopt_requests"
            )
        return harness

    def agent_calls(
        self, harness: Harness, skill: str, prompt: str, is_document: bool, **how: Any
    ) -> AgentCalls:
        return AgentCalls(**how)

    def serve(self, agent_calls: AgentCalls, prompt: str, start: Callable[[str], RunEnd]) -> RunEnd:
        """Run an agent, which ``start`` starts with a base URL, and serve its calls."""
        with self.serving(agent_calls) as url:
            return start(url)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.upstream.close()


class _Upstream(Client):
    """Client of the target's provider, for requests in any of the four protocols."""

    def __init__(self, config: ModelConfig, throttle: Throttle) -> None:
        def sleep(seconds: float) -> None:
            self._served.agent_calls.wait(seconds)

        super().__init__(config, throttle=throttle, sleep=sleep)
        self._served = threading.local()

    def forward(self, agent_calls: AgentCalls, **request: Any) -> Completion:
        """Pass on a request of a run: the arguments of ``_post``.

        Raises:
            ModelError: the provider has failed, or a cap is reached.
        """
        self._served.agent_calls = agent_calls
        return self._pay(request, agent_calls.account, lambda reply: None)

    def _send(self, request: Request) -> Completion:
        start = time.monotonic()
        agent_calls = self._served.agent_calls
        prompt = request["messages"]
        reply = ""
        used = Usage()
        try:
            reply = self._post(**request).decode(errors="replace")
            used, fault = read_reply(request["speaks"], reply, prompt, self.config)
        except Exception as error:
            fault = classify(error)
            if fault is None:
                raise
            if fault.answered:  # It may have been paid for.
                used = self.config.usage(Tokens(), prompt)
            if fault.status == 400 and not fault.fatal:  # e.g. a context that is too long
                agent_calls.fault = ModelFault(f"{self.name}: {fault}", refused=fault.filtered)
                # An error with a status has a response.
                return Completion(error.response.text, finish_reason=_REFUSED)  # type: ignore[attr-defined]
        agent_calls.fault = fault and ModelFault(
            f"{self.name}: {fault}", fatal=fault.fatal, refused=fault.refused
        )
        if fault is not None:
            agent_calls.lose(time.monotonic() - start)
            fault.usage = used
            raise fault
        return Completion(reply, usage=used)

    def _post(
        self, messages: str, body: dict[str, Any], speaks: str, path: str, headers: Any
    ) -> bytes:
        """Send a request; ``messages`` is the JSON text of ``body``."""
        import openai

        plain = [pair for pair in headers.items() if _is_plain("".join(pair))]
        given = {name.lower(): value for name, value in plain}
        sent = {n: v for n, v in given.items() if n in _PASSED_ON or n.startswith("anthropic-")}
        client = self._client()
        own = _OWN_KEY.get(speaks, "")
        if self.config.key_command:
            self._key = self.config.api_key()
            own = ""
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
    """Server that refuses a connection if there are too many."""

    daemon_threads = True
    request_queue_size = 128

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return threading.active_count() < _MOST_THREADS

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
        """List the models for agents that ask: only the one under test."""
        if self._addressed()[0] is None:
            return self._refuse(404, _NOT_SERVED)
        name = self.proxy.config.model
        one = {"id": name, "object": "model", "type": "model", "display_name": name, "created": 1}
        return self._answer(200, {"object": "list", "data": [one], "has_more": False})

    def do_POST(self) -> None:
        raw = self._body()
        proxy = self.proxy
        agent_calls, rest, query = self._addressed()
        found = _PATHS.fullmatch(rest)
        if agent_calls is None or found is None:
            return self._refuse(404, _NOT_SERVED)
        try:
            body = _request(raw, query)
        except (ValueError, TypeError, RecursionError) as error:
            return self._refuse(400, f"not a JSON request for one reply: {error}")
        speaks = str(found.lastgroup)
        path = found[0]
        model = proxy.config.model
        if speaks in ("gemini", "count"):  # Model and key are in the URL, not in the body.
            path = re.sub(r"(?<=/models/)[^/:]+", lambda _: model, path)
            query = "&".join(p for p in query.split("&") if p and not p.startswith("key="))
        else:
            body["model"] = model
        if speaks == "chat" and body.get("stream"):
            _ask_for_usage(body)
        text = json.dumps(body)
        agent_calls.look(text)
        if speaks == "count":
            tokens = estimate_tokens(text)
            return self._answer(200, {"input_tokens": tokens, "totalTokens": tokens})
        path += f"?{query}" if query else ""
        with agent_calls.call() as allowed:
            if not allowed:
                _LOG.info("an agent in %s may make no further call", agent_calls.account[2])
                return self._refuse(400, "this run may make no further call now")
            try:
                request = {"messages": text, "body": body, "speaks": speaks, "path": path}
                reply = proxy.upstream.forward(agent_calls, **request, headers=self.headers)
                agent_calls.count(reply.usage)
            except Exception as error:
                _LOG.warning(
                    "a call of an agent in %s has failed: %s", agent_calls.account[2], error
                )
                agent_calls.fail(error)
                return self._refuse(400, "the provider has failed, or a cap is reached")
        status = 400 if reply.finish_reason == _REFUSED else 200
        return self._answer(status, reply.text)

    def _addressed(self) -> tuple[AgentCalls | None, str, str]:
        """Return the requesting run, if it is current, and the path and query it requests."""
        path, _, query = self.path.partition("?")
        _, name, rest = [*path.split("/", 2), "", ""][:3]
        return self.proxy.served.get(name), f"/{rest}", query

    def _body(self) -> bytes:
        """Read a request's body; one that is malformed or too large ends the connection."""
        whole = bytearray()
        room = _LARGEST_REQUEST
        with contextlib.suppress(ValueError):
            for size in self._sizes():
                room -= max(size, _LEAST_CHUNK)
                if size < 0 or room < 0:
                    raise ValueError
                whole += self.rfile.read(size)
            return bytes(whole)
        self.close_connection = True
        return b""

    def _sizes(self) -> Iterator[int]:
        """Yield the size of each part of a body before it is read (ValueError: malformed)."""
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            yield int(self.headers.get("content-length") or 0)
            return
        while size := int(self.rfile.readline(99).split(b";")[0], 16):
            yield size
            self.rfile.readline(2)
        self.rfile.readline(99)

    def _refuse(self, status: int, words: str) -> None:
        error = {"type": "invalid_request_error", "message": words}
        self._answer(status, {"type": "error", "error": error})

    def _answer(self, status: int, content: str | dict[str, Any]) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        streamed = status == 200 and text.lstrip()[:1] not in ("{", "[")
        body = text.encode()
        self.send_response(status)
        kind = "text/event-stream" if streamed else "application/json"
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _is_plain(text: str) -> bool:
    """Return whether a text can be a header or in a URL."""
    return text.isascii() and text.isprintable()


def _ask_for_usage(body: dict[str, Any]) -> None:
    """Have a stream of Chat Completions end with the tokens that it took."""
    options = body.get("stream_options")
    options = options if isinstance(options, dict) else {}
    body["stream_options"] = {**options, "include_usage": True}


def _request(raw: bytes, query: str) -> dict[str, Any]:
    """Parse a request.

    Raises:
        ValueError: it is not JSON, or asks for several replies, for one in the background or for
            one of other models.
        TypeError: it is not a JSON object.
        RecursionError: it is nested too deeply.
    """
    body = {**parsed(raw)}
    text = json.dumps(body, ensure_ascii=False, allow_nan=False)
    if not text.isascii():
        body = parsed(encodable(text))
    settings = [body, *(body.get(name) for name in _SETTINGS)]
    several = any(
        part.get(name) not in (None, 1)
        for part in settings
        if isinstance(part, dict)
        for name in _SEVERAL
    )
    if several or body.get("background"):
        raise ValueError(f"{', '.join(_SEVERAL)} must be 1, background false")
    if any(map(body.get, _OTHERS)) or not _is_plain(query):
        raise ValueError(f"{', '.join(_OTHERS)} must be empty, the query ASCII")
    return body


def marks_of(body: str, *known: str, most: int = MARKS) -> tuple[str, ...]:
    """Choose lines of a skill's body, as in JSON, that show in a request that it was read.

    Several, up to ``most``, because a tool may cut off a part; none that is in the ``known`` texts.
    """
    lines = dict.fromkeys(line.strip() for line in body.split("\n"))
    whole = "\n".join(known)
    new = [line for line in lines if line and line not in whole]
    new.sort(key=len, reverse=True)
    best = [line for line in new if len(line) >= _LEAST_MARK][:most] or new[:1]
    return tuple(json.dumps(line)[1:-1] for line in best)
