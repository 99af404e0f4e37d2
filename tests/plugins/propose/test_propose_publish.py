"""The command ``propose`` against a bare repository and a command that answers like ``gh``."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from fake_github import TOKEN, Fault
from skill_project import AFTER, BEFORE, BRANCH, bare
from tables import each_row

from pytest_skillopt.cli import main
from pytest_skillopt.errors import UserError
from pytest_skillopt.plugins.propose import forges as api
from pytest_skillopt.plugins.propose.forges import Request, parse_remote, push_headers, push_options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fake_github import FakeGitHub
    from refusals import Refusal
    from skill_project import Project


REQUEST = Request(BRANCH, "main", "Train", "text", "marker")


HEADER = "Basic " + base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()


def propose() -> None:
    assert main(["propose"]) == 0


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Have a server on loopback; its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@contextlib.contextmanager
def over_http(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the remote as a GitHub over HTTP to whoever sends exactly ``HEADER``; its address."""
    project.remote_git("config", "http.receivepack", "true")

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            if self.headers.get_all("Authorization") != [HEADER]:
                self.send_error(401)
                return
            path, _, query = self.path.partition("?")
            done = subprocess.run(
                ["git", "http-backend"],
                env={
                    **os.environ,
                    "GIT_PROJECT_ROOT": str(project.remote),
                    "GIT_HTTP_EXPORT_ALL": "1",
                    "PATH_INFO": path.removeprefix("/octo/repo.git"),
                    "QUERY_STRING": query,
                    "REQUEST_METHOD": self.command,
                    "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                    "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                    "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                },
                input=self.rfile.read(int(self.headers.get("Content-Length") or 0)),
                check=True,
                capture_output=True,
            )
            head, _, body = done.stdout.partition(b"\r\n\r\n")
            fields = [line.split(": ", 1) for line in head.decode().split("\r\n")]
            self.send_response(int(dict(fields).get("Status", "200")[:3]))
            for name, value in fields:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _serve  # noqa: N815

        def log_message(self, *args: Any) -> None:
            pass

    with serving(Handler) as url:
        project.git("remote", "set-url", "origin", f"{url}/octo/repo.git")
        monkeypatch.setenv("GITHUB_SERVER_URL", url)
        yield url


@contextlib.contextmanager
def listen(redirect: str = "") -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server that says no, or to go elsewhere; its address, and the headers it was sent."""
    headers: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers.append(dict(self.headers))
            if redirect:
                self.send_response(302)
                self.send_header("Location", redirect + self.path)
                self.end_headers()
            else:
                self.send_error(404)

        def log_message(self, *args: Any) -> None:
            pass

    with serving(Handler) as url:
        yield url, headers


def test_new_request_is_a_draft(
    project: Project, github: FakeGitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "outputs"))
    monkeypatch.setenv("GITHUB_RUN_ID", "77")
    project.propose()

    propose()

    (pull,) = github.pulls
    assert (pull["head"]["ref"], pull["base"], pull["draft"]) == (BRANCH, "main", True)
    assert pull["title"] == "Train the skill invoices: pass rate 44.4 % to 100.0 %"
    assert "Passes more tasks." in pull["body"]
    assert BRANCH in project.branches()
    name, url, _ = (tmp_path / "outputs").read_text().splitlines()
    assert name.startswith("pull-request-url<<end-")
    assert url == "https://github.com/octo/repo/pull/1"
    assert "https://github.com/octo/repo/actions/runs/77" in pull["body"]


def test_running_again_changes_nothing_and_a_new_proposal_updates_the_open_request(
    proposed: Project, asked: FakeGitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = proposed.branches()
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "outputs"))

    propose()

    assert proposed.branches() == before
    assert asked.writes == []
    assert "\nhttps://github.com/octo/repo/pull/1\n" in (tmp_path / "outputs").read_text()

    asked.pulls[0]["draft"] = False
    proposed.propose(AFTER + b"\nRound to cents.\n", counts=[(0, 3)])

    propose()

    (pull,) = asked.pulls
    assert "0.0 % to 100.0 %" in pull["title"]
    assert pull["draft"] is False
    assert proposed.remote_git("rev-list", "--count", f"main..{BRANCH}") == "1"
    assert "Round to cents." in proposed.remote_git("show", f"{BRANCH}:skills/SKILL.md")


def test_branch_is_deleted_when_nothing_is_left(
    proposed: Project, asked: FakeGitHub, capsys: pytest.CaptureFixture[str]
) -> None:
    """GitHub closes the request of a branch that is deleted."""
    proposed.skill.write_bytes(AFTER)
    proposed.commit("By hand", "skills")
    proposed.push()

    propose()

    assert BRANCH not in proposed.branches()
    propose()
    assert "the base branch has this text already" in capsys.readouterr().out
    assert asked.writes == []


@pytest.mark.parametrize("before", [BEFORE, AFTER])
def test_a_forged_result_with_the_text_of_the_base_deletes_no_other_proposal(
    proposed: Project, asked: FakeGitHub, before: bytes
) -> None:
    theirs = proposed.branches()[BRANCH]
    proposed.propose(BEFORE, before=before)
    propose()
    assert proposed.branches()[BRANCH] == theirs
    assert asked.writes == []


def test_a_result_does_not_choose_the_branch(project: Project, github: FakeGitHub) -> None:
    """The name is that of the skill on the base branch, not the one in the result."""
    project.propose()
    file = project.proposal / "result.json"
    file.write_text(file.read_text().replace('"name": "invoices"', '"name": "payroll"'))
    (project.proposal / "invoices").rename(project.proposal / "payroll")
    propose()
    assert project.branches().keys() == {"main", BRANCH}
    assert "payroll" not in github.pulls[0]["title"] + github.pulls[0]["body"]


@pytest.mark.parametrize("left", [True, False])
def test_human_push_is_left_alone(
    proposed: Project, asked: FakeGitHub, capsys: pytest.CaptureFixture[str], left: bool
) -> None:
    ada = proposed.someone()
    ada.git("checkout", "--quiet", BRANCH)
    ada.git("commit", "--quiet", "--allow-empty", "-m", "Mine")
    ada.git("push", "--quiet", "origin", BRANCH)
    if left:
        proposed.propose(AFTER + b"\nRound to cents.\n")
    else:
        proposed.skill.write_bytes(AFTER)
        proposed.commit("By hand", "skills")
        proposed.push()

    propose()

    assert proposed.branches()[BRANCH] == ada.git("rev-parse", "HEAD")
    assert f"somebody else has changed {BRANCH}, so it was not touched" in capsys.readouterr().out
    assert asked.pulls[0]["state"] == "open"


def test_declined_change_is_not_proposed_again(proposed: Project, asked: FakeGitHub) -> None:
    asked.pulls[0]["state"] = "closed"
    proposed.git("push", "--quiet", "origin", "--delete", BRANCH)

    propose()
    assert (len(asked.pulls), BRANCH in proposed.branches()) == (1, False)

    proposed.propose(AFTER + b"\nAnother change.\n")
    propose()
    assert (len(asked.pulls), BRANCH in proposed.branches()) == (2, True)


@pytest.mark.parametrize(("call", "lost"), [(0, False), (2, False), (2, True)])
def test_fault_at_any_call_ends_in_the_same_state(
    project: Project, github: FakeGitHub, call: int, lost: bool
) -> None:
    """The server fails for good at one call; another run later ends as if nothing had been.

    The calls are before the push, and at the request, which is found if its answer is lost.
    """
    project.propose()
    quiet: list[Fault | None] = [Fault(502, lost=lost)]
    real = github._serve

    def fail_from(http: object) -> None:
        if len(github.calls) == call:
            github.faults = list(quiet)
        real(http)  # type: ignore[arg-type]

    github._serve = fail_from  # type: ignore[method-assign]
    assert main(["propose"]) == int(not lost)
    github._serve = real  # type: ignore[method-assign]
    github.faults.clear()

    propose()

    assert len(github.pulls) == 1
    assert project.remote_git("rev-list", "--count", f"main..{BRANCH}") == "1"


@each_row(
    ("fault", "message"),
    [
        (Fault(401, "Bad credentials"), "the token is not valid, or has expired"),
        (
            Fault(403, "GitHub Actions is not permitted to create or approve pull requests."),
            'turn on "Allow GitHub Actions to create and approve pull requests"',
        ),
        (Fault(403, "Resource not accessible by integration"), "pull-requests: write"),
        (Fault(404, "Not Found"), "needs contents: write"),
        (Fault(422, "No commits between"), r"No commits between \(HTTP 422\)$"),
        (Fault(502), r"Server Error \(HTTP 502\): run this again later"),
        (Fault(403, "API rate limit exceeded"), "exceeded .HTTP 403.: run this again later"),
    ],
)
def test_refusals_of_the_server(github: FakeGitHub, fault: Fault, message: str) -> None:
    github.faults = [fault]
    with pytest.raises(UserError, match=message):
        api.GitHub(None, os.environ).declined(REQUEST)


def test_a_refusal_of_the_server_is_shown_without_the_token(
    project: Project, github: FakeGitHub, capsys: pytest.CaptureFixture[str]
) -> None:
    project.propose()
    github.faults = [Fault(404, f"Not Found for {TOKEN}")]
    assert main(["propose"]) == 1
    shown = capsys.readouterr()
    assert "Not Found for [redacted" in shown.err
    assert "needs contents: write" in shown.err
    assert TOKEN not in shown.out + shown.err


def test_a_request_that_another_job_opens_at_the_same_moment(
    project: Project, github: FakeGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = github._create
    monkeypatch.setattr(github, "_create", lambda asked: (create(asked), create(asked))[1])
    project.propose()
    propose()
    assert len(github.pulls) == 1


def test_server_that_is_not_there(project: Project, github: FakeGitHub, refusal: Refusal) -> None:
    project.propose()
    github.stop()
    said = refusal("propose")
    assert "GET /pulls of octo/repo failed: Get" in said
    assert "run this again later" in said
    assert project.branches().keys() == {"main"}


def test_a_command_that_does_not_answer(
    project: Project,
    github: FakeGitHub,
    gh_log: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Refusal,
) -> None:
    project.propose()
    gh_log.with_name("gh").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(api, "TIMEOUT", 0.05)
    assert "gh gave no answer" in refusal("propose")


def test_without_the_command_nothing_is_pushed(
    project: Project,
    github: FakeGitHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Refusal,
) -> None:
    project.propose()
    git = shutil.which("git")
    assert git
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "git").symlink_to(git)
    monkeypatch.setenv("PATH", str(tmp_path / "only"))
    said = refusal("propose")
    assert "requests on GitHub need the command gh, which is not on PATH: install it" in said
    assert "push only with --no-forge" in said
    assert project.branches().keys() == {"main"}
    assert main(["propose", "--no-forge"]) == 0


@pytest.mark.parametrize("place", [".", "", "tools"])
def test_a_command_in_the_checkout_does_not_run(
    project: Project, github: FakeGitHub, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A relative folder of PATH, in which a file of the repository stands for the command."""
    project.propose()
    for name in ("gh", "git"):
        spy = project.root / place / name
        spy.parent.mkdir(exist_ok=True)
        spy.write_text(f"#!/bin/sh\ntouch {project.root.parent}/ran\nexit 1\n")
        spy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    propose()
    assert not (project.root.parent / "ran").exists()
    assert len(github.pulls) == 1


def test_texts_and_token_are_on_no_command_line(
    proposed: Project, asked: FakeGitHub, gh_log: Path
) -> None:
    """Others on the machine can read it, and a text could be taken for an option."""
    asked.pulls.clear()
    propose()
    proposed.propose(AFTER + b"\nRound to cents.\n")
    propose()
    (pull,) = asked.pulls
    log = gh_log.read_text(encoding="utf-8")
    assert len(log.splitlines()) == len(asked.calls)
    assert TOKEN not in log
    assert pull["title"] not in log
    assert "Passes more tasks" not in log
    words = [json.loads(line) for line in log.splitlines()]
    assert {tuple(each[:4]) for each in words} == {("api", "--hostname", "github.com", "--method")}


def test_a_request_on_a_server_of_ones_own_to_another_branch_without_drafts(
    project: Project, github: FakeGitHub, gh_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings of the command that change its output are left out."""
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.example.com/")
    github.drafts = False
    project.git("push", "--quiet", "origin", "main:refs/heads/release")
    program = gh_log.with_name("gh")
    seen = gh_log.with_name("seen")
    program.rename(program.with_name("real"))
    program.write_text(f'#!/bin/sh\nenv >>{seen}\nexec {program.with_name("real")} "$@"\n')
    program.chmod(0o755)
    for name in ("GH_DEBUG", "GH_FORCE_TTY", "CLICOLOR_FORCE", "DEBUG", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "of-this-test")
    project.propose()
    assert main(["propose", "--base", "release"]) == 0
    (pull,) = github.pulls
    assert (pull["base"], pull["draft"]) == ("release", False)
    assert '"--hostname", "github.example.com"' in gh_log.read_text(encoding="utf-8")
    assert "of-this-test" not in seen.read_text()
    assert f"GH_TOKEN={TOKEN}" in seen.read_text()


def test_the_real_command_does_the_same(
    project: Project, github: FakeGitHub, gh_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reaches the server on loopback as a proxy, for a name that it calls without TLS."""
    gh_log.with_name("gh").unlink()
    if not shutil.which("gh"):
        pytest.skip("gh is not installed")
    monkeypatch.setenv("GITHUB_SERVER_URL", "http://github.localhost")
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{github.port}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{github.port}")
    monkeypatch.setenv("GH_CONFIG_DIR", str(gh_log.parent / "config"))
    github.drafts = False
    project.propose()
    propose()
    (pull,) = github.pulls
    assert pull["draft"] is False
    assert "Passes more tasks." in pull["body"]
    github.calls.clear()
    project.propose(AFTER + b"\nRound to cents.\n", counts=[(0, 3)])
    propose()
    assert github.writes == ["PATCH /pulls/1"]
    assert "0.0 % to 100.0 %" in pull["title"]
    monkeypatch.delenv("GITHUB_TOKEN")
    with pytest.raises(UserError, match="no token for GitHub"):
        api.GitHub(None, os.environ).declined(REQUEST)
    monkeypatch.setenv("GITHUB_TOKEN", "another")
    with pytest.raises(UserError, match=r"credentials \(HTTP 401\): the token is not valid"):
        api.GitHub(None, os.environ).declined(REQUEST)


def test_push_over_http_carries_the_token_in_a_header_alone(
    project: Project, github: FakeGitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A git in front of git writes down its arguments; the server wants the header."""
    log = tmp_path / "git.log"
    spy = tmp_path / "bin" / "git"
    spy.parent.mkdir()
    real = subprocess.check_output(["sh", "-c", "command -v git"], text=True).strip()
    spy.write_text(f'#!/bin/sh\nprintf "%s " "$@" >>{log}\nexec {real} "$@"\n')
    spy.chmod(0o755)
    with over_http(project, monkeypatch) as url:
        project.propose()
        # A header that a checkout may leave behind; two of them would be refused.
        project.git("config", f"http.{url}/.extraheader", "Authorization: Basic old")
        monkeypatch.setenv("PATH", f"{spy.parent}{os.pathsep}{os.environ['PATH']}")

        propose()

    assert BRANCH in project.branches()
    seen = log.read_text()
    assert " push " in seen
    assert TOKEN not in seen
    assert HEADER not in seen


def test_a_token_that_may_not_push(
    project: Project, github: FakeGitHub, monkeypatch: pytest.MonkeyPatch, refusal: Refusal
) -> None:
    project.propose()
    with over_http(project, monkeypatch):
        project.remote_git("config", "http.receivepack", "false")
        said = refusal("propose")
    assert "error: 403" in said
    assert "GitHub: contents: write" in said


def test_a_branch_in_the_place_of_the_folder_of_branches(
    project: Project, github: FakeGitHub, refusal: Refusal
) -> None:
    project.git("push", "--quiet", "origin", "main:skillopt")
    project.propose()
    assert "origin has a branch named skillopt" in refusal("propose")


def test_what_was_pushed_before_a_refusal_is_told(
    project: Project, github: FakeGitHub, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(project.skill.parent, project.root / "more")
    (project.root / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nskillopt_skill = "skills/SKILL.md, more/SKILL.md"\n'
    )
    project.commit("Two skills", "more", "pyproject.toml")
    project.push()
    file = project.propose() / "result.json"
    result = json.loads(file.read_text())
    result["skills"].append(result["skills"][0] | {"path": "more/SKILL.md"})
    file.write_text(json.dumps(result))
    shutil.copytree(project.proposal / "invoices", project.proposal / "invoices-2")
    project.hook("update", f'[ "$1" = refs/heads/{BRANCH} ]\n')

    assert main(["propose"]) == 1

    shown = capsys.readouterr()
    assert f"skills/SKILL.md: pushed to the new branch {BRANCH}" in shown.out
    assert "the remote origin refused skillopt/invoices-" in shown.err


def test_no_forge_pushes_and_prints(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """The text can be pasted into a forge, and starts no command of the CI that prints it."""
    project.propose(
        reason="::error::\x1b[31mThanks @octocat, fixes #1\n\n"
        "```\n::set-output name=a::b\n##[error]c\n```\n"
    )
    assert main(["propose", "--no-forge"]) == 0
    out = capsys.readouterr().out
    assert f"pushed to the new branch {BRANCH}" in out
    assert BRANCH in project.branches()
    assert "Thanks @\u200boctocat, fixes #\u200b1" in out
    assert "\x1b" not in out
    lines = out.split("\n")
    assert any("set-output" in line for line in lines)
    assert not [line for line in lines if line.lstrip().startswith("::") or "##[" in line]


def test_tampered_proposal_pushes_nothing_and_starts_no_command_of_the_ci(
    project: Project, github: FakeGitHub, refusal: Refusal
) -> None:
    project.propose()
    project.tamper(path="x\n::set-output name=a::b\n##[error]c")
    lines = refusal("propose").split("\n")
    assert any("set-output" in line for line in lines)
    assert not [line for line in lines if line.lstrip().startswith("::") or "##[" in line]
    assert project.branches().keys() == {"main"}
    assert github.calls == []


def test_no_token_and_no_login(
    project: Project,
    github: FakeGitHub,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Refusal,
) -> None:
    project.propose()
    monkeypatch.delenv("GITHUB_TOKEN")
    assert "no token for GitHub: set GITHUB_TOKEN" in refusal("propose")
    assert project.branches().keys() == {"main"}


@each_row(
    ("url", "arguments"),
    [("{}", ()), ("file://{}", ()), ("../remote.git", ()), ("{}", ("--remote=origin",))],
)
def test_remote_that_is_not_on_github(
    project: Project, refusal: Refusal, url: str, arguments: tuple[str, ...]
) -> None:
    project.propose()
    project.git("remote", "set-url", "origin", url.format(project.remote))
    said = refusal("propose", *arguments)
    assert "the remote is a folder" in said
    assert "push only with --no-forge" in said
    assert "github.com" not in said
    assert "token" not in said


def test_where_a_checkout_stands_that_proposes_nothing(project: Project, refusal: Refusal) -> None:
    project.propose()
    project.git("checkout", "--quiet", "-b", "skillopt/other")
    assert "itself a proposal" in refusal("propose", "--no-forge")
    project.git("checkout", "--quiet", "--detach")
    assert "HEAD is detached" in refusal("propose", "--no-forge")
    assert main(["propose", "--no-forge", "--base", "main"]) == 0
    project.git("remote", "set-url", "origin", str(project.root / "gone.git"))
    assert "git fetch failed" in refusal("propose", "--no-forge", "--base", "main")


@each_row(
    ("argument", "words"),
    [
        ("--base=mian", "the remote origin has no branch 'mian'"),
        ("--base=--upload-pack=touch x", "touch x' cannot be a branch: name one with --base"),
        ("--base=a..b", "'a..b' cannot be a branch: name one with --base"),
        ("--remote=upstream", "no git remote named 'upstream' (known: origin)"),
        ("--remote=--upload-pack=touch x", "touch x' (known: origin)"),
        ("--remote=../elsewhere", "no git remote named '../elsewhere' (known: origin)"),
    ],
)
def test_a_place_that_takes_no_proposal_is_named(
    project: Project, refusal: Refusal, argument: str, words: str
) -> None:
    project.propose()
    assert words in refusal("propose", "--no-forge", argument)
    assert project.branches().keys() == {"main"}


def test_no_repository(
    project: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Refusal,
) -> None:
    project.propose()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (project.root / ".skillopt").rename(elsewhere / ".skillopt")
    monkeypatch.chdir(elsewhere)
    assert "is not in a git repository" in refusal("propose", "--no-forge")


def test_a_repository_that_git_refuses_is_told_before_a_night_is_paid_for_and_after(
    project: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    """As one that is another user's, in a container."""
    (project.root / ".git" / "config").write_text("[core\n")
    project.propose()
    assert main(["propose", "--no-forge"]) == 1
    assert "git rev-parse failed: fatal: bad config line" in capfd.readouterr().err
    marked = "@pytest.mark.skill_task\ndef test_it(skill): pass\n"
    (project.root / "test_it.py").write_text(f"import pytest\n\n{marked}")
    assert main(["schedule", "--max-calls=9"]) == 0
    told = "pytest-skillopt propose would refuse it now: git rev-parse failed: fatal: bad config"
    assert told in capfd.readouterr().err


def test_no_git(project: Project, monkeypatch: pytest.MonkeyPatch, refusal: Refusal) -> None:
    project.propose()
    monkeypatch.setenv("PATH", str(project.root))
    assert "git is not installed, or not on PATH" in refusal("propose", "--no-forge")
    broken = project.root / "git"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    assert "git cannot be started: Exec format" in refusal("propose", "--no-forge")


def test_dirty_work_tree_is_left_out(project: Project) -> None:
    project.propose()
    (project.root / "other.txt").write_text("dirty\n")
    project.skill.write_bytes(AFTER)
    assert main(["propose", "--no-forge"]) == 0
    assert project.remote_git("show", f"{BRANCH}:other.txt") == "untouched"
    assert (project.root / "other.txt").read_text() == "dirty\n"


def test_shallow_clone_is_enough(
    proposed: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (proposed.root / "other.txt").write_text("more\n")
    proposed.commit("More", "other.txt")
    proposed.push()
    shallow = tmp_path / "shallow"
    subprocess.run(
        ["git", "clone", "--quiet", "--depth=1", f"file://{proposed.remote}", str(shallow)],
        check=True,
    )
    (proposed.root / ".skillopt").rename(shallow / ".skillopt")
    monkeypatch.chdir(shallow)

    assert main(["propose", "--no-forge"]) == 0

    assert proposed.remote_git("rev-parse", f"{BRANCH}^") == proposed.branches()["main"]


def test_programs_that_the_clone_names_do_not_run(
    project: Project, github: FakeGitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every setting of git that names a program, written into the clone as a test run could."""
    seen = tmp_path / "seen"
    seen.mkdir()
    spy = tmp_path / "spy"
    spy.write_text(f'#!/bin/sh\nenv >"{seen}/$$"\nexec cat\n')
    spy.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("pre-push", "reference-transaction", "post-index-change", "fsmonitor-watchman"):
        (hooks / name).write_bytes(spy.read_bytes())
        (hooks / name).chmod(0o755)
    included = tmp_path / "included"
    included.write_text(f"[core]\npager = {spy}\n[alias]\nfetch = !{spy}\npush = !{spy}\n")
    with over_http(project, monkeypatch):
        project.propose()
        for key in (
            "filter.spy.clean", "filter.spy.smudge", "filter.spy.process", "core.fsmonitor",
            "core.sshCommand", "core.askPass", "core.gitProxy", "core.editor", "credential.helper",
            "remote.origin.uploadpack", "remote.origin.receivepack", "gpg.program",
            "diff.external", "diff.spy.textconv", "merge.spy.driver", "core.alternateRefsCommand",
            "uploadpack.packObjectsHook",
        ):  # fmt: skip
            project.git("config", key, str(spy))
        for key in ("commit.gpgSign", "push.gpgSign", "filter.spy.required"):
            project.git("config", key, "true")
        project.git("config", "core.hooksPath", str(hooks))
        project.git("config", "include.path", str(included))
        (project.root / ".git" / "info").mkdir(exist_ok=True)
        (project.root / ".git" / "info" / "attributes").write_text("* filter=spy diff=spy\n")
        os.utime(project.root / "other.txt", (1, 1))

        propose()

    assert BRANCH in project.branches()
    assert list(seen.iterdir()) == []


def test_address_that_the_clone_puts_in_place_gets_no_token(
    project: Project, github: FakeGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listen() as (url, headers):
        project.propose()
        project.git("remote", "set-url", "origin", "https://github.com/octo/repo.git")
        project.git("config", f"url.{url}/.insteadOf", "https://github.com/")
        assert main(["propose"]) == 1
    assert headers
    assert not any("Authorization" in each for each in headers)


def test_token_does_not_follow_a_redirect(
    project: Project, github: FakeGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listen() as (elsewhere, there), listen(redirect=elsewhere) as (url, here):
        project.propose()
        project.git("remote", "set-url", "origin", f"{url}/octo/repo.git")
        monkeypatch.setenv("GITHUB_SERVER_URL", url)
        assert main(["propose"]) == 1
    assert all("Authorization" in each for each in here)
    assert not there


@each_row("host", ["github.evil.example", "notgithub.com", "github.com.evil.example", "mygithub"])
def test_github_token_is_for_its_own_server(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Refusal,
    host: str,
) -> None:
    project.propose()
    project.git("remote", "set-url", "origin", f"https://{host}/octo/repo.git")
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    assert "GITHUB_SERVER_URL" in refusal("propose")
    where = parse_remote(f"https://{host}/octo/repo.git")
    environ = {"GH_TOKEN": TOKEN, "GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "octo/repo"}
    assert push_headers("github", environ, where) == {}
    assert push_headers("github", {**environ, "GITHUB_SERVER_URL": f"https://{host}"}, where)


@each_row("name", ["GITLAB_TOKEN", "CI_JOB_TOKEN"])
def test_gitlab_token_is_for_its_own_server(name: str) -> None:
    environ = {name: "secret", "GITLAB_CI": "true"}
    for host in ("gitlab.evil.example", "gitlab.com.evil.example", "example.org"):
        where = parse_remote(f"https://{host}/a/b.git")
        assert push_headers("gitlab", environ, where) == {}
        assert push_headers("gitlab", {**environ, "CI_SERVER_URL": f"https://{host}/"}, where)
    assert push_headers("gitlab", environ, parse_remote("https://gitlab.com:443/a/b.git"))
    assert push_headers("gitlab", environ, parse_remote("https://gitlab.com:8443/a/b.git")) == {}
    assert push_headers("gitlab", environ, parse_remote("http://gitlab.com/a/b.git")) == {}


def test_two_at_once_end_well(proposed: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """The branch of the other one is there once the server takes the first push."""
    theirs = proposed.branches()[BRANCH]
    proposed.remote_git("update-ref", "-d", f"refs/heads/{BRANCH}")
    take = f"git update-ref refs/heads/{BRANCH} {theirs}\n"
    hook = proposed.hook("pre-receive", f'rm -f "$0"\nunset GIT_QUARANTINE_PATH\n{take}')
    assert main(["propose", "--no-forge"]) == 0
    assert not hook.exists()
    assert "nothing was pushed" in capsys.readouterr().out
    assert proposed.branches()[BRANCH] == theirs
    assert proposed.remote_git("rev-list", "--count", f"main..{BRANCH}") == "1"


def test_a_request_shows_what_was_checked_not_what_the_result_says(
    project: Project, github: FakeGitHub
) -> None:
    """A line that the shown diff lacks, other figures, and a broken task that is called fixed."""
    joke = b"Answer every question about weather with a joke.\n"
    project.propose(AFTER + joke, counts=[(0, 3), (0, 3), (3, 2)])
    rate = {"rate": 0.9, "low": 0.9, "high": 0.9, "tasks": 3, "samples": 9}
    rows = json.loads((project.proposal / "result.json").read_bytes())["skills"][0]["tasks"]
    project.tamper(
        patch="+Write dates as ISO.\n",
        suite={"before": rate, "after": rate | {"rate": 0.99}},
        tasks=[row | {"change": "fixed"} for row in rows],
        edits=[{"op": "append", "status": "accepted", "content": "x", "reason": "Ready to merge."}],
        reason="Accepted, fresh: 90.0 % to 99.0 %.",
        from_search=2,
    )
    propose()
    checked, unchecked = github.pulls[0]["body"].split("## Not checked: what the training says\n")
    assert f"\n+{joke.decode()}" in checked
    assert "from 33.3 % to 88.9 %: 3 tasks, 18 rollouts" in checked
    assert (
        "1 task with fewer passes</summary>\n\n| base | edited | task |\n| ---: | ---: | --- |\n"
        "| 3 of 3 | 2 of 3 | `test_invoice.py::test_2` |" in checked
    )
    for claim in ("99.0", "fixed", "eady to merge", "fresh"):
        assert claim not in checked
    assert "Ready to merge" in unchecked
    assert "99.0" not in unchecked


def test_git_carries_a_text_of_any_size_to_gitlab(project: Project) -> None:
    text = "\u767c" * 30_000 + "a\n" * 30_000 + "\\" * 70_000
    project.remote_git("config", "receive.advertisePushOptions", "true")
    request = Request("skillopt/long", "main", "Long", text, "")
    with bare(project.root) as git:
        tip = git.fetch("main")
        git.push(tip, request.branch, seen="", options=push_options(request))
    assert request.branch in project.branches()


HOSTILE = (
    "the seal is missing\\n\\n/close",
    "x\\\\n/merge",
    "\\\\\\n/assign @victim",
    "x\n/approve\r/close",
    "x\u2028/label ~bug",
)
"""Texts that would begin a line with a quick action of GitLab, which reads \\n as a line break."""


def push_to_gitlab(project: Project, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Propose to a hook that writes down the push options, and answers like GitLab."""
    project.remote_git("config", "receive.advertisePushOptions", "true")
    project.hook(
        "pre-receive",
        'n=0\nwhile [ "$n" -lt "$GIT_PUSH_OPTION_COUNT" ]; do\n'
        'eval "printf \'%s\\0\' \\"\\$GIT_PUSH_OPTION_$n\\"" >>options\nn=$((n + 1))\ndone\n'
        "echo 'View merge request for skillopt/invoices:'\n"
        "echo '  https://gitlab.example.com/a/b/-/merge_requests/5'\n",
    )
    monkeypatch.setenv("GITLAB_CI", "true")
    propose()
    return (project.remote / "options").read_bytes().decode().split("\0")


def test_gitlab_opens_the_request_with_the_push_and_no_text_of_others_starts_a_line(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the reason, the id of a task, the reason of an edit and the skill itself.

    GitLab reads \\n in an option as a line break.
    """
    text = "\n".join(HOSTILE)
    written = AFTER.replace(b"twice.", f"twice. {text}".encode())
    project.propose(written.replace(b"\r", b"").replace(b"\xe2\x80\xa8", b""), reason=text)
    file = project.proposal / "result.json"
    result = json.loads(file.read_bytes())
    (skill,) = result["skills"]
    skill["tasks"][0]["id"] += f"[{text}]"
    skill["edits"] = [{"op": "append", "content": text, "reason": text, "status": "accepted"}]
    file.write_text(json.dumps(result))
    options = push_to_gitlab(project, monkeypatch)
    assert options[0] == "merge_request.create"
    assert {"merge_request.target=main", "merge_request.draft"} <= set(options)
    (text,) = [line for line in options if line.startswith("merge_request.description=")]
    assert "\\n+Write dates as ISO.\\n" in text
    assert "the seal is missing" in text
    assert "https://gitlab.example.com/a/b/-/merge_requests/5" in capsys.readouterr().out
    for option in options:
        text = option.partition("=")[2].replace("\\n", "\n")
        lines = [line.strip() for line in text.splitlines()]
        assert [line for line in lines if line.startswith("/")] == []


def test_a_request_that_gitlab_does_not_open(
    project: Project,
    refusal: Refusal,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It takes the branch, and answers with a warning and the address of a form."""
    monkeypatch.setenv("GITLAB_CI", "true")
    project.remote_git("config", "receive.advertisePushOptions", "true")
    form = "https://gitlab.example.com/a/b/-/merge_requests/new?x=1"
    denied = "echo User access was denied\n"
    project.hook("post-receive", f"{denied}echo '{form}'\n")
    project.propose()
    for _ in range(2):  # the next night, too
        said = refusal("propose")
        assert f"{BRANCH} was deleted again, and GitLab opened no request" in said
    project.hook("post-receive", f"echo '{form.partition('new')[0]}7'\n")
    propose()
    project.git("commit", "--quiet", "--allow-empty", "-m", "Go on")
    project.git("push", "--quiet", "origin", "HEAD")
    project.hook("post-receive", f"{denied}echo '{form}'\n")
    said = refusal("propose")
    assert f"{BRANCH} was deleted again" in said
    assert not project.remote_git("branch", "--list", BRANCH)
    project.hook("post-receive", denied)
    assert f"{BRANCH} was pushed, and GitLab" in refusal("propose")
    capsys.readouterr()
    assert main(["propose"]) == 0, "as after a command that was killed when it had pushed"
    assert "if GitLab has no open request for it, delete the branch" in capsys.readouterr().out
    assert f"User access was denied {form}\nCorrect that" in said
