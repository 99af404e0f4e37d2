"""Serve a page about one run on loopback, to clients that know the token in its address."""

from __future__ import annotations

import json
import secrets
import time
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from pytest_skillopt.plugins.watch.follow import Follower
from pytest_skillopt.report.markup import hash_source, policy, style
from pytest_skillopt.run.directory import PAGE

if TYPE_CHECKING:
    from pathlib import Path

_EVERY = 1.0
"""Seconds between two reads of the journal."""


class Watch(ThreadingHTTPServer):
    """Server of ``url``, until ``shutdown``."""

    daemon_threads = True

    def __init__(self, run: Path, port: int = 0) -> None:
        """Listen on 127.0.0.1; port 0 is a free one. Raise OSError if the port is in use."""
        super().__init__(("127.0.0.1", port), _Handler)
        self.run = run
        self.token = secrets.token_urlsafe(18)
        self._follower = Follower(run)
        self._lock = Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{self.token}/"

    def look(self, since: int) -> dict[str, Any]:
        """Return the current state, with the samples from number ``since`` on."""
        with self._lock:
            self._follower.read()
            return self._follower.state(since)

    def transcript(self, offset: int) -> dict[str, Any] | None:
        with self._lock:
            return self._follower.transcript(offset)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors, such as a closed connection."""


class _Handler(BaseHTTPRequestHandler):
    server: Watch
    server_version = "skillopt"
    sys_version = ""

    def parse_request(self) -> bool:
        """Refuse requests without the token, and for other host names (DNS rebinding)."""
        if not super().parse_request():
            return False
        port = self.server.server_address[1]
        parts = urlsplit(self.path)
        token, _, self.path = parts.path.lstrip("/").partition("/")
        self.query = dict(parse_qsl(parts.query))
        known = self.headers.get("Host") in (f"127.0.0.1:{port}", f"localhost:{port}")
        if known and secrets.compare_digest(token.encode(), self.server.token.encode()):
            return True
        self.send_error(HTTPStatus.NOT_FOUND)
        return False

    def do_GET(self) -> None:
        if self.path == "":
            page, allowed = _page()
            self._send(page, "text/html; charset=utf-8", csp=allowed)
        elif self.path == "events":
            self._follow(int(self.query.get("since", 0)))
        elif self.path == "transcript":
            self._send_transcript(int(self.query.get("at", -1)))
        elif self.path == "report" and (report := self.server.run / PAGE).is_file():
            self._send(report.read_bytes(), "text/html; charset=utf-8")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _follow(self, since: int) -> None:
        """Send the state as server-sent events whenever it has changed."""
        self.send_response(HTTPStatus.OK)
        self._headers("text/event-stream")
        told = b""
        while True:
            state = self.server.look(since)
            data = json.dumps(state).encode()
            if data != told:
                told = data
                since = since + len(state["samples"])
                self.wfile.write(b"id: %d\ndata: %b\n\n" % (since, data))
            else:
                self.wfile.write(b":\n\n")
            time.sleep(_EVERY)

    def _send_transcript(self, offset: int) -> None:
        found = self.server.transcript(offset)
        if found:
            self._send(json.dumps(found).encode(), "application/json")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, body: bytes, kind: str, *, csp: str = "") -> None:
        self.send_response(HTTPStatus.OK)
        if csp:
            self.send_header("Content-Security-Policy", csp)
        self.send_header("Content-Length", str(len(body)))
        self._headers(kind)
        self.wfile.write(body)

    def _headers(self, kind: str) -> None:
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the address contains the token."""


@cache
def _page() -> tuple[bytes, str]:
    """Return the page, and a policy that allows only its own style, script and connections."""
    folder = files("pytest_skillopt.plugins.watch") / "templates"
    page, css, script = (
        (folder / f"watch.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js")
    )
    css = style() + css
    allowed = policy(
        css, f"script-src {hash_source(script)}", "connect-src 'self'", "frame-ancestors 'none'"
    )
    return page.replace("/*css*/", css).replace("/*js*/", script).encode(), allowed
