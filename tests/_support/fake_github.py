"""A command ``gh`` that answers like the real one, for a GitHub on loopback."""

from __future__ import annotations

import json
import re
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "ghs_not-a-real-token-0123456789abcdef"

_GH = '''#!{python} -IS
"""The part of `gh api` that is used, as gh 2.23 does it; its arguments are written down."""
import json, os, socket, sys

with open({log!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
words, flags = sys.argv[1:], {{}}
for name in ("--hostname", "--method", "--input"):
    if name in words:
        at = words.index(name)
        flags[name] = words[at + 1]
        del words[at : at + 2]
if len(words) != 2 or words[0] != "api" or words[1].startswith("-"):
    sys.exit("unknown command or flag: " + " ".join(words))
host = flags.get("--hostname", "github.com")
token = os.environ.get("GH_TOKEN" if host == "github.com" else "GH_ENTERPRISE_TOKEN")
if not token:
    sys.stderr.write("gh: To use GitHub CLI in automation, set the GH_TOKEN environment variable.")
    sys.exit(4)
body = sys.stdin.buffer.read() if flags.get("--input") == "-" else b""
try:
    with socket.create_connection(("127.0.0.1", {port})) as server:
        head = "%s /%s HTTP/1.0\\r\\nAuthorization: token %s\\r\\nContent-Length: %d\\r\\n\\r\\n"
        head %= flags.get("--method", "GET"), words[1], token, len(body)
        server.sendall(head.encode() + body)
        head, _, answer = server.makefile("rb").read().partition(b"\\r\\n\\r\\n")
except OSError as error:
    sys.exit('Get "https://api.github.com/%s": %s' % (words[1], error))
sys.stdout.buffer.write(answer)
status = int(head.split()[1])
if status > 299:
    sys.exit("gh: %s (HTTP %d)" % (json.loads(answer)["message"], status))
'''


def write_gh(folder: Path, port: int) -> Path:
    """Write the command into a folder; return the file with the arguments of its calls."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "gh.log"
    program = folder / "gh"
    program.write_text(_GH.format(python=sys.executable, log=str(log), port=port))
    program.chmod(0o755)
    return log


@dataclass
class Fault:
    """Answer of the server in place of the truth."""

    status: int
    message: str = "Server Error"
    lost: bool = False
    """The request is carried out all the same: only its answer is lost."""


class FakeGitHub:
    """Answers like GitHub's REST interface for ``octo/repo``, on loopback."""

    def __init__(self) -> None:
        self.pulls: list[dict[str, Any]] = []
        self.calls: list[str] = []
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
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def writes(self) -> list[str]:
        return [call for call in self.calls if not call.startswith("GET")]

    def _serve(self, http: BaseHTTPRequestHandler) -> None:
        body = _body(http)
        payload = json.loads(body) if body else {}
        url = urlsplit(http.path)
        self.calls.append(f"{http.command} {url.path.removeprefix('/repos/octo/repo')}")
        fault = self.faults.pop(0) if self.faults else None
        if fault is None or fault.lost:
            status, data = self._answer(http, url.path, parse_qs(url.query), payload)
        if fault is not None:
            status = fault.status
            data = {"message": fault.message}
        said = json.dumps(data).encode()
        http.send_response(status)
        http.send_header("Content-Type", "application/json; charset=utf-8")
        http.send_header("Content-Length", str(len(said)))
        http.end_headers()
        http.wfile.write(said)

    def _answer(
        self,
        http: BaseHTTPRequestHandler,
        path: str,
        query: dict[str, list[str]],
        payload: dict[str, Any],
    ) -> tuple[int, Any]:
        if http.headers.get("Authorization") != f"token {TOKEN}":
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
            "html_url": f"https://github.com/octo/repo/pull/{number}",
        }
        self.pulls.append(pull)
        return 201, pull


def _body(http: BaseHTTPRequestHandler) -> bytes:
    """Read the body of a request; the real command sends it in chunks."""
    if http.headers.get("Transfer-Encoding") != "chunked":
        return http.rfile.read(int(http.headers.get("Content-Length") or 0))
    parts = []
    while size := int(http.rfile.readline(), 16):
        parts.append(http.rfile.read(size))
        http.rfile.readline()
    http.rfile.readline()
    return b"".join(parts)
