"""A Chat Completions server on the loopback interface, behind which the simulated model sits."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from simulation import releases
from simulation.chat import BadRequest, Temper, parse_request
from simulation.roles import respond

if TYPE_CHECKING:
    from simulation.chat import Reply, Request

TEMPERS = {
    "sim": Temper(
        "sim",
        luck=0.06,
        lapse=0.03,
        missed=0.2,
        platitude=0.25,
        harmful=0.12,
        leak=0.03,
        garbled=0.0,
        latency=0.04,
    ),
    "sim-noisy": Temper(
        "sim-noisy",
        luck=0.2,
        lapse=0.12,
        missed=0.3,
        platitude=0.3,
        harmful=0.25,
        leak=0.1,
        garbled=0.05,
        latency=0.04,
    ),
    "sim-steady": Temper(
        "sim-steady",
        luck=0.0,
        lapse=0.0,
        missed=0.0,
        platitude=0.0,
        harmful=0.0,
        leak=0.0,
        garbled=0.0,
    ),
}
_CHARACTERS_PER_TOKEN = 4


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

    def do_GET(self) -> None:
        if self.path.rstrip("/") != "/v1/models":
            return self._fail(404, f"there is nothing at {self.path}")
        models = [{"id": name, "object": "model", "owned_by": "offline"} for name in TEMPERS]
        return self._send(200, {"object": "list", "data": models})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.rstrip("/") == "/v1/responses":
            return self._send_raw("text/event-stream", releases.stream(json.loads(body)))
        if self.path.rstrip("/") != "/v1/chat/completions":
            return self._fail(404, f"there is nothing at {self.path}")
        try:
            request = parse_request(json.loads(body), TEMPERS)
        except json.JSONDecodeError as error:
            return self._fail(400, f"the body is not JSON: {error}")
        except BadRequest as error:
            return self._fail(error.status, str(error))
        reply = respond(request)
        time.sleep(request.temper.latency)
        return self._send(200, _completion(request, reply, len(body)))

    def log_message(self, format: str, *args: Any) -> None:
        """A library does not write to the terminal."""

    def _fail(self, status: int, message: str) -> None:
        kind = "not_found" if status == 404 else "invalid_request_error"
        self._send(status, {"error": {"message": message, "type": kind, "code": None}})

    def _send(self, status: int, payload: dict[str, Any]) -> None:
        self._send_raw("application/json", json.dumps(payload).encode(), status)

    def _send_raw(self, kind: str, data: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()


def _completion(request: Request, reply: Reply, body_size: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in reply.tool_calls
        ]
    prompt_tokens = max(1, body_size // _CHARACTERS_PER_TOKEN)
    completion_tokens = max(1, len(json.dumps(message)) // _CHARACTERS_PER_TOKEN)
    return {
        "id": "chatcmpl-offline",
        "object": "chat.completion",
        # A fixed date: the reply is a function of the request alone.
        "created": 0,
        "model": request.temper.name,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": "tool_calls" if reply.tool_calls else "stop",
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }
