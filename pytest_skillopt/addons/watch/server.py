"""Serve a page about one run on loopback, to clients that know the token in its address."""

from __future__ import annotations

import os
import secrets
import signal
import time
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from pytest_skillopt.addons.markup import hash_source, style
from pytest_skillopt.addons.watch.follow import Follower, encoded

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
            return {**self._follower.summary(), "samples": self._follower.samples(since)}

    def transcript(self, offset: int) -> dict[str, Any] | None:
        with self._lock:
            return self._follower.transcript(offset)

    def stop(self) -> bool:
        """End the run as Ctrl-C does: it can be continued.

        The signal is SIGTERM, because background processes of a shell script ignore SIGINT.
        """
        with self._lock:
            self._follower.read()
            pid = self._follower.controller()
        if pid is None:
            return False
        try:
            os.kill(pid, signal.SIGTERM)
        except OSError:
            return False
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors, such as a closed connection."""


class _Handler(BaseHTTPRequestHandler):
    server: Watch
    server_version = "skillopt"
    sys_version = ""

    def do_GET(self) -> None:
        place = self._place()
        if place is None:
            return
        path, query = place
        if path == "":
            self._send(_page(), "text/html; charset=utf-8", csp=_policy())
        elif path == "events":
            self._follow(int(query.get("since", ["0"])[0]))
        elif path == "transcript":
            found = self.server.transcript(int(query.get("at", ["-1"])[0]))
            self._send_json(found) if found else self.send_error(HTTPStatus.NOT_FOUND)
        elif path == "report" and (report := self.server.run / "report.html").is_file():
            self._send(report.read_bytes(), "text/html; charset=utf-8")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        place = self._place()
        if place is None:
            return
        ours = self.headers.get("Origin") == f"http://{self.headers.get('Host')}"
        if place[0] != "stop" or not ours:
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        self._send_json({"stopped": self.server.stop()})

    def _place(self) -> tuple[str, dict[str, list[str]]] | None:
        """Return path and query after the token; refuse other host names (DNS rebinding)."""
        port = self.server.server_address[1]
        parts = urlsplit(self.path)
        token, _, path = parts.path.lstrip("/").partition("/")
        known = self.headers.get("Host") in (f"127.0.0.1:{port}", f"localhost:{port}")
        if not known or not secrets.compare_digest(token.encode(), self.server.token.encode()):
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        return path, parse_qs(parts.query)

    def _follow(self, since: int) -> None:
        """Send the state as server-sent events whenever it has changed."""
        self.send_response(HTTPStatus.OK)
        self._headers("text/event-stream")
        told = b""
        while True:
            state = self.server.look(since)
            samples = len(state["samples"])
            data = encoded(state)
            if data != told:
                self.wfile.write(b"id: %d\ndata: %b\n\n" % (since + samples, data))
                self.wfile.flush()
                told, since = data, since + samples
            else:
                self.wfile.write(b":\n\n")
                self.wfile.flush()
            time.sleep(_EVERY)

    def _send_json(self, value: Any) -> None:
        self._send(encoded(value), "application/json")

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
def _part(name: str) -> str:
    found = (files("pytest_skillopt.addons.watch") / "templates" / name).read_text(encoding="utf-8")
    return style() + found if name == "watch.css" else found


@cache
def _page() -> bytes:
    page = _part("watch.html")
    return page.replace("/*css*/", _part("watch.css")).replace("/*js*/", _part("watch.js")).encode()


@cache
def _policy() -> str:
    """Return a policy that allows only the page's own style, script and connections."""
    style, script = (hash_source(_part(name)) for name in ("watch.css", "watch.js"))
    return (
        f"default-src 'none'; style-src {style}; script-src {script}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
