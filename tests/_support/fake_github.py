"""A server on loopback that answers like GitHub's REST interface."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "ghs_not-a-real-token-0123456789abcdef"


@dataclass
class Fault:
    """Answers of the server in place of the truth."""

    status: int
    message: str = "Server Error"
    headers: dict[str, str] = field(default_factory=dict)
    lost: bool = False
    """The request is carried out all the same: only its answer is lost."""


class FakeGitHub:
    """Answers like GitHub's REST interface for ``octo/repo``, on loopback."""

    def __init__(self) -> None:
        self.pulls: list[dict[str, Any]] = []
        self.comments: dict[int, list[dict[str, Any]]] = {}
        self.calls: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.faults: list[Fault | None] = []
        self.drafts = True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _do(self) -> None:
                outer._serve(self)

            do_GET = do_POST = do_PATCH = _do  # noqa: N815

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def writes(self) -> list[str]:
        return [call for call in self.calls if not call.startswith("GET")]

    def _serve(self, http: BaseHTTPRequestHandler) -> None:
        length = int(http.headers.get("Content-Length") or 0)
        payload = json.loads(http.rfile.read(length)) if length else {}
        url = urlsplit(http.path)
        self.calls.append(f"{http.command} {url.path.removeprefix('/repos/octo/repo')}")
        self.headers.append({name.lower(): value for name, value in http.headers.items()})
        fault = self.faults.pop(0) if self.faults else None
        if fault is None or fault.lost:
            status, data = self._answer(http, url.path, parse_qs(url.query), payload)
        if fault is not None:
            status, data = fault.status, {"message": fault.message}
        body = json.dumps(data).encode()
        http.send_response(status)
        for name, value in (fault.headers if fault else {}).items():
            http.send_header(name, value)
        http.send_header("Content-Length", str(len(body)))
        http.end_headers()
        http.wfile.write(body)

    def _answer(
        self,
        http: BaseHTTPRequestHandler,
        path: str,
        query: dict[str, list[str]],
        payload: dict[str, Any],
    ) -> tuple[int, Any]:
        if http.headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"message": "Bad credentials"}
        path = path.removeprefix("/repos/octo/repo")
        if path == "/pulls" and http.command == "GET":
            owner, _, ref = query["head"][0].partition(":")
            assert owner == "octo"
            found = [p for p in self.pulls if p["head"]["ref"] == ref]
            return 200, [p for p in found if p["state"] == query["state"][0]]
        if path == "/pulls":
            return self._create(payload)
        if match := re.fullmatch(r"/pulls/(\d+)", path):
            self.pulls[int(match[1]) - 1].update(payload)
            return 200, self.pulls[int(match[1]) - 1]
        if match := re.fullmatch(r"/issues/(\d+)/labels", path):
            labels = self.pulls[int(match[1]) - 1]["labels"]
            labels += [{"name": name} for name in payload["labels"]]
            return 200, labels
        if match := re.fullmatch(r"/issues/(\d+)/comments", path):
            comments = self.comments.setdefault(int(match[1]), [])
            if http.command == "POST":
                comments.append(payload)
                return 201, payload
            start = 100 * (int(query["page"][0]) - 1)
            return 200, comments[start : start + 100]
        return 404, {"message": "Not Found"}

    def _create(self, payload: dict[str, Any]) -> tuple[int, Any]:
        ref = payload["head"]
        if payload["draft"] and not self.drafts:
            message = "Draft pull requests are not supported in this repository."
            return 422, {"message": "Validation Failed", "errors": [{"message": message}]}
        if any(p["head"]["ref"] == ref and p["state"] == "open" for p in self.pulls):
            error = {"code": "custom", "message": f"A pull request already exists for octo:{ref}."}
            return 422, {"message": "Validation Failed", "errors": [error]}
        number = len(self.pulls) + 1
        pull = {
            **payload,
            "number": number,
            "head": {"ref": ref},
            "state": "open",
            "merged_at": None,
            "labels": [],
            "html_url": f"https://github.com/octo/repo/pull/{number}",
        }
        self.pulls.append(pull)
        return 201, pull
