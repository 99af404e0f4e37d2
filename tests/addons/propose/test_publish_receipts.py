"""The monthly job's second half: receipts to the base branch, an issue if a verdict changed."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.addons.receipts import HISTORY
from pytest_skillopt.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fake_github import FakeGitHub
    from skill_project import Project

FOLDER = ".skillopt-drift/skills-skill-md"
RATE = {"rate": 0.5, "low": 0.4, "high": 0.6, "tasks": 3, "samples": 15}


def measure(project: Project, run: str, verdict: str, **more: Any) -> Path:
    """Leave what the mode leaves: the receipt, and the history with it."""
    folder = project.root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "history.json"
    past = json.loads(path.read_text()) if path.exists() else []
    receipt = {
        "schema": "skillopt-drift/1",
        "verdict": verdict,
        "changed": False,
        "run": run,
        "date": "2026-11-01T03:17:00+00:00",
        "skill": "skills/SKILL.md",
        **dict.fromkeys(("skill_sha256", "suite_sha256", "fingerprint"), "0" * 64),
        "model": "openai:new, codex 0.163.0",
        "reason": "by chance with probability 0.001; see @octocat and #7",
        "k": 5,
        "with_skill": RATE,
        "without": RATE | {"rate": 0.9},
        "compared_with": "",
        "cost": None,
        "version": "1.0",
        "tasks": [],
        **more,
    }
    path.write_text(json.dumps([*past, receipt]))
    (folder / "receipt.json").write_text("whatever a job has left here")
    return folder


def publish(*arguments: str) -> int:
    return main(["publish-receipts", *arguments])


def next_month(project: Project) -> None:
    project.git("fetch", "--quiet", "origin")
    project.git("clean", "--quiet", "-fd", ".skillopt-drift")
    project.git("reset", "--quiet", "--hard", "origin/main")


def test_an_issue_is_opened_only_if_the_verdict_changes(
    project: Project, github: FakeGitHub, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for month, verdict in enumerate(["cannot tell", "hurts", "hurts", "still helps"]):
        next_month(project)
        folder = measure(project, f"run-{month}", verdict)
        issues = len(github.issues)
        assert publish() == 0
        told.append(len(github.issues) - issues)
        at_remote = project.remote_git("show", f"main:{FOLDER}/history.json")
        measured = (folder / "history.json").read_text()
        assert HISTORY.validate_json(at_remote) == HISTORY.validate_json(measured)
        receipt = project.remote_git("show", f"main:{FOLDER}/receipt.json")
        assert json.loads(receipt) == json.loads(at_remote)[-1], "made from the history"
        badge = json.loads(project.remote_git("show", f"main:{FOLDER}/badge.json"))
        assert badge["message"] == verdict
    assert told == [0, 1, 0, 1]
    first, last = github.issues
    assert first["title"] == "skills/SKILL.md: hurts (openai:new, codex 0.163.0)"
    assert "**hurts** (before: still helps)" in first["body"]
    assert "90.0 % without, 50.0 % with it" in first["body"]
    assert "@octocat" not in first["body"], "nobody is called"
    assert first["labels"] == ["skillopt"]
    assert "still helps (" in last["title"]
    said = capsys.readouterr().out
    assert first["html_url"] in said
    assert "hurts, as before" in said
    other = project.remote_git("show", "main:other.txt")
    assert other == "untouched"
    assert publish() == 0
    assert "there is no new receipt" in capsys.readouterr().out


def test_receipts_go_to_a_folder_without_an_issue(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(project, "run-1", "hurts")
    assert publish() == 1
    said = capsys.readouterr().err
    assert "the remote is a folder" in said
    assert "push only with --no-forge" in said
    assert "github.com" not in said
    assert publish("--no-forge") == 0
    assert "no issue was opened" in capsys.readouterr().out
    assert "run-1" in project.remote_git("show", f"main:{FOLDER}/history.json")


def test_a_command_that_failed_before_the_push_opens_no_second_issue(
    project: Project, github: FakeGitHub
) -> None:
    measure(project, "run-1", "hurts")
    hook = project.remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    before = project.branches()
    assert publish() == 1
    assert (len(github.issues), project.branches()) == (1, before)
    hook.unlink()
    assert publish() == 0
    assert len(github.issues) == 1
    assert project.branches() != before


def test_without_rights_nothing_is_pushed(
    project: Project, github: FakeGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(project, "run-1", "hurts")
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_another")
    before = project.branches()
    assert publish() == 1
    assert project.branches() == before


def test_a_dry_run_changes_nothing(
    project: Project, github: FakeGitHub, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(project, "run-1", "hurts")
    before = project.branches()
    assert publish("--dry-run") == 0
    assert "skills/SKILL.md: hurts" in capsys.readouterr().out
    assert (github.calls, project.branches()) == ([], before)


def test_the_past_is_not_rewritten(
    project: Project, github: FakeGitHub, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(project, "run-1", "hurts")
    assert publish() == 0
    next_month(project)
    past = project.root / FOLDER / "history.json"
    forged = json.loads(past.read_text())
    forged[0]["verdict"] = "still helps"
    past.write_text(json.dumps(forged))
    measure(project, "run-2", "hurts")
    before = project.branches()
    assert publish() == 1
    assert "is not the history of main with one receipt more" in capsys.readouterr().err
    assert (len(github.issues), project.branches()) == (1, before)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"skill": "skills/other/SKILL.md"}, "is not a skill of main"),
        ({"verdict": "splendid"}, "does not hold a receipt of this version"),
        ({"run": "x\n-->"}, "does not hold a receipt of this version"),
        ({"model": 3}, "does not hold a receipt of this version"),
    ],
)
def test_a_receipt_of_another_form_is_refused(
    project: Project,
    github: FakeGitHub,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    said: str,
) -> None:
    measure(project, **{"run": "run-1", "verdict": "hurts", **change})
    before = project.branches()
    assert publish() == 1
    assert said in capsys.readouterr().err
    assert (github.calls, project.branches()) == ([], before)


def test_a_link_is_not_followed(
    project: Project, github: FakeGitHub, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = measure(project, "run-1", "hurts")
    (folder / "history.json").unlink()
    (folder / "history.json").symlink_to(project.root / "pyproject.toml")
    assert publish() == 1
    assert "history.json is a link" in capsys.readouterr().err
    assert github.calls == []


@pytest.fixture
def gitlab(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """GitLab's interface for issues on loopback, named in the environment as in its jobs."""
    issues: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(200, issues)

        def do_POST(self) -> None:
            assert self.path == "/api/v4/projects/42/issues"
            assert self.headers["Authorization"] == "Bearer glpat-not-a-real-token"
            issue = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            issues.append({**issue, "web_url": "https://gitlab.test/i/1"})
            self._say(201, issues[-1])

        def _say(self, status: int, data: Any) -> None:
            body = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("CI_API_V4_URL", f"http://127.0.0.1:{server.server_port}/api/v4")
    monkeypatch.setenv("CI_PROJECT_ID", "42")
    monkeypatch.setenv("GITLAB_TOKEN", "glpat-not-a-real-token")
    yield issues
    server.shutdown()
    server.server_close()


def test_the_same_on_gitlab(
    project: Project, gitlab: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    measure(project, "run-1", "no longer needed")
    assert publish("--base=main") == 0
    next_month(project)
    measure(project, "run-2", "no longer needed")
    assert publish("--base=main") == 0
    (issue,) = gitlab
    assert issue["title"].startswith("skills/SKILL.md: no longer needed")
    assert (issue["labels"], "before: still helps" in issue["description"]) == ("skillopt", True)
    assert "https://gitlab.test/i/1" in capsys.readouterr().out


def test_gitlab_without_a_token_says_what_is_missing(
    project: Project,
    gitlab: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("GITLAB_TOKEN")
    measure(project, "run-1", "hurts")
    assert publish() == 1
    assert "GITLAB_TOKEN, a project access token" in capsys.readouterr().err
