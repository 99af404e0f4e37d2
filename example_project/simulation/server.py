"""HTTP server of the simulated models: Chat Completions, and Responses for a coding agent.

A reply is a function of the request: of the model's name, the messages up to the last one of the
user, and whatever marks the sample (``seed``, ``user`` or ``metadata``).
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

from simulation import desk, releases, shipping
from simulation.agent import answer
from simulation.optimizer import propose

if TYPE_CHECKING:
    from collections.abc import Sequence


class Temper(NamedTuple):
    """Reliability of a model; all but the latency in seconds are probabilities in [0, 1].

    ``luck``: does the right thing unasked. ``lapse``: forgets a stated convention once. ``missed``:
    does not see the cause of a failure. The others: proposes such an edit as well.
    """

    luck: float = 0.0
    lapse: float = 0.0
    missed: float = 0.0
    useless: float = 0.0
    harmful: float = 0.0
    leak: float = 0.0
    latency: float = 0.0


TEMPERS = {"sim": Temper(0.06, 0.03, 0.2, 0.25, 0.12, 0.03, latency=0.04), "sim-steady": Temper()}


@dataclass(frozen=True)
class Request:
    """A checked request with its own source of chance."""

    temper: Temper
    messages: list[dict[str, Any]]
    tools: dict[str, set[str]]
    """Names of the offered tools, and of their parameters."""
    schema: dict[str, Any] | None
    """JSON schema that the answer has to fit, empty for any JSON, None for a text."""
    seed: str

    @property
    def system(self) -> str:
        """The text of all system messages."""
        return "\n\n".join(m["content"] for m in self.messages if m["role"] == "system")

    @property
    def prompt(self) -> str:
        """The last message of the user."""
        return next((m["content"] for m in reversed(self.messages) if m["role"] == "user"), "")

    def uniform(self, label: str) -> float:
        """Draw a number in [0, 1); each label is an independent draw, the same for each caller."""
        digest = hashlib.sha256(f"{self.seed}\x1f{label}".encode()).digest()
        return int.from_bytes(digest[:7], "big") / 2**56

    def pick(self, label: str, choices: Sequence[str]) -> str:
        """Draw one of several choices."""
        return choices[int(self.uniform(label) * len(choices))]


def parse(body: Any) -> Request:
    """Check and read the body of a request; ValueError or KeyError (no such model) says why not."""
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages or [0]):
        raise ValueError("messages must be a non-empty list of objects")
    name = str(body.get("model", ""))
    if name not in TEMPERS:
        raise KeyError(f"there is no offline model {name!r}, only {', '.join(TEMPERS)}")
    messages = [{**m, "role": m.get("role"), "content": m.get("content") or ""} for m in messages]
    # The turns of a tool loop share their draws, so that the agent does not change its mind.
    users = [i for i, m in enumerate(messages) if m["role"] == "user"]
    said = [[m["role"], m["content"]] for m in messages[: max(users, default=-1) + 1]]
    marks = [body.get(mark) for mark in ("seed", "user", "metadata")]
    functions = [tool["function"] for tool in body.get("tools") or ()]
    form = body.get("response_format") or {}
    return Request(
        temper=TEMPERS[name],
        messages=messages,
        tools={f["name"]: set(f["parameters"]["properties"]) for f in functions},
        schema=form.get("json_schema", {}).get("schema", {}) if "json" in str(form) else None,
        seed=json.dumps([name, marks, said]),
    )


def respond(request: Request) -> tuple[str, list[dict[str, Any]]]:
    """Answer as optimizer, user or agent, by the form that is asked for: a text and tool calls."""
    members = set((request.schema or {}).get("properties") or {})
    if "reasoning" in members:
        return json.dumps(propose(request, members), ensure_ascii=False), []
    if "asked_for" in members:
        return json.dumps(desk.play(request)), []
    if "# Support desk" in request.system:
        return desk.answer(request)
    if "# Release\n" in request.system:
        return shipping.answer(request)
    return answer(request)


def start() -> str:
    """Start a server in daemon threads and return its base URL."""
    server = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, name="skillopt-offline", daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/v1"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Lanes open many connections at once; a refused one would look like an outage.
    request_queue_size = 256


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Headers and body leave in one packet.
    wbufsize = -1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/v1/responses":
            return self._send(releases.stream(json.loads(body)), kind="text/event-stream")
        if self.path != "/v1/chat/completions":
            return self._send({"error": {"message": f"nothing is at {self.path}"}}, 404)
        try:
            request = parse(data := json.loads(body))
        except (ValueError, KeyError) as error:
            status = 404 if isinstance(error, KeyError) else 400
            return self._send({"error": {"message": str(error.args[0])}}, status)
        reply = respond(request)
        time.sleep(request.temper.latency)
        return self._send(_completion(data["model"], *reply, len(body)))

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the terminal clean."""

    def _send(self, payload: Any, status: int = 200, kind: str = "application/json") -> None:
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()


def _completion(name: str, text: str, calls: list[Any], size: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    message |= {"tool_calls": calls} if calls else {}
    asked = size // 4 + 1
    answered = len(json.dumps(message)) // 4 + 1  # A token has 4 characters.
    finish = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": asked, "completion_tokens": answered}
    return {
        "id": "chatcmpl-offline",
        "object": "chat.completion",
        "created": 0,  # The reply is a function of the request.
        "model": name,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {**usage, "total_tokens": asked + answered},
    }
