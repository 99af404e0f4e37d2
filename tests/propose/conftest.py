"""A project in git with a bare remote, and a proposal for it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pytest_skillopt.propose.git import describe
from pytest_skillopt.propose.manifest import sha256, write_proposal
from pytest_skillopt.report.result import Arm, Result, SkillResult, TaskRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

BEFORE = b"""---
name: invoices
description: Extracts data from invoices.
---
# Invoices

Read the invoice.

<!-- skillopt:keep -->
Never invent a number.
<!-- /skillopt:keep -->

Answer in JSON.
"""
AFTER = BEFORE.replace(b"Read the invoice.\n", b"Read the invoice twice.\nWrite dates as ISO.\n")


def run_git(directory: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@dataclass
class Project:
    """A clone with its bare remote ``origin``; the skill lies in ``skills/SKILL.md``."""

    root: Path
    remote: Path

    @property
    def proposal(self) -> Path:
        return self.root / ".skillopt" / "proposal"

    @property
    def skill(self) -> Path:
        return self.root / "skills" / "SKILL.md"

    def git(self, *args: str) -> str:
        return run_git(self.root, *args)

    def commit(self, message: str, *paths: str) -> str:
        self.git("add", "--", *paths)
        self.git("commit", "--quiet", "-m", message)
        return self.git("rev-parse", "HEAD")

    def push(self) -> None:
        self.git("push", "--quiet", "origin", "main")

    def remote_git(self, *args: str) -> str:
        return run_git(self.remote, *args)

    def branches(self) -> dict[str, str]:
        """Branches of the remote with their tips."""
        lines = self.remote_git("for-each-ref", "--format=%(refname:short) %(objectname)").split()
        return dict(zip(lines[::2], lines[1::2], strict=True))

    def someone(self, name: str = "someone") -> Project:
        """A second clone of the remote, of another person."""
        clone = self.root.parent / name
        run_git(self.root.parent, "clone", "--quiet", str(self.remote), str(clone))
        return Project(clone, self.remote)

    def propose(
        self,
        after: bytes = AFTER,
        *,
        before: bytes | None = None,
        counts: Sequence[tuple[int, int]] = ((0, 3), (1, 3), (3, 3)),
        path: str = "skills/SKILL.md",
        body: str = "Passes more tasks.\n",
    ) -> Path:
        """Write what a training would leave. ``counts``: passed of 3 before and after, by task."""
        before = (self.root / path).read_bytes() if before is None else before
        rows = [
            TaskRow(
                id=f"test_invoice.py::test_{number}",
                split="train" if number % 2 else "val",
                before=Arm(passed=was, n=3),
                after=Arm(passed=now, n=3),
            )
            for number, (was, now) in enumerate(counts)
        ]
        skill = SkillResult(
            path=path,
            name="invoices",
            before=sha256(before),
            after=sha256(after),
            status="accepted",
            reason="better",
            tasks=rows,
        )
        result = Result(
            mode="train",
            run="20260101-000000",
            started="2026-01-01T00:00:00Z",
            seconds=1.0,
            status="accepted",
            reason="better",
            command=["pytest", "--skillopt-train"],
            skills=[skill],
        )
        report = self.root / ".skillopt" / "report.html"
        report.parent.mkdir(exist_ok=True)
        report.write_text("<!doctype html><title>report</title>")
        facts = describe(self.root)
        assert write_proposal(self.proposal, result, [(path, before, after)], facts, body, report)
        return self.proposal

    def tamper(self, **changes: Any) -> None:
        """Change fields of the proposed skill in the manifest; hashes of files are kept right."""
        file = self.proposal / "manifest.json"
        manifest = json.loads(file.read_bytes())
        manifest["skills"][0] |= changes
        manifest["files"] = {
            name: sha256((self.proposal / name).read_bytes()) for name in manifest["files"]
        }
        file.write_text(json.dumps(manifest))


TOKEN = "ghs_not-a-real-token-0123456789abcdef"


@dataclass
class Fault:
    """What the server answers in place of the truth."""

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
        self.faults: list[Fault] = []
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


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGitHub]:
    """A GitHub on loopback, named in the environment as in GitHub Actions, with a token."""
    server = FakeGitHub()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_REPOSITORY", "octo/repo")
    monkeypatch.setenv("GITHUB_API_URL", server.url)
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def git_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No configuration and no token of the machine reaches a test."""
    for name in list(os.environ):
        if name.startswith(("GIT_", "GITHUB_", "GITLAB_", "CI_")) or name in ("GH_TOKEN", "CI"):
            monkeypatch.delenv(name)
    config = tmp_path / "gitconfig"
    config.write_text(
        "[user]\nname = Ada\nemail = ada@example.org\n[init]\ndefaultBranch = main\n"
        "[advice]\ndetachedHead = false\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project on ``main`` whose one commit is pushed."""
    remote = tmp_path / "remote.git"
    root = tmp_path / "project"
    run_git(tmp_path, "init", "--quiet", "--bare", str(remote))
    run_git(tmp_path, "clone", "--quiet", str(remote), str(root))
    made = Project(root, remote)
    made.skill.parent.mkdir()
    made.skill.write_bytes(BEFORE)
    (root / "other.txt").write_text("untouched\n")
    (root / ".gitignore").write_text(".skillopt/\n")
    (root / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nskillopt_skill = "skills/SKILL.md"\n'
    )
    made.commit("Start", "skills", "other.txt", ".gitignore", "pyproject.toml")
    made.push()
    return made
