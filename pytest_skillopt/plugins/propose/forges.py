"""Open requests for review on GitHub and GitHub Enterprise, and on GitLab.

The command ``gh`` calls GitHub. GitLab opens or updates a merge request by push options when it
receives the push, and closes it when its branch is deleted.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from pytest_skillopt.errors import UserError
from pytest_skillopt.git import scrub
from pytest_skillopt.untrusted import parsed, printable, redact, secret_variables

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT = 60.0
"""Maximum seconds of one call."""
_NOT_LOGGED_IN = 4
"""Exit code of ``gh`` without a login (``gh help exit-codes``)."""
_AGAIN = ": run this again later, it continues where it stopped"
TOKENS = {
    "github": {"GITHUB_TOKEN": "x-access-token", "GH_TOKEN": "x-access-token"},
    "gitlab": {"GITLAB_TOKEN": "oauth2", "CI_JOB_TOKEN": "gitlab-ci-token"},
}
"""Variables that may hold a token, with the name of the user for git, by forge."""
_SERVERS = {
    "github": ("GITHUB_SERVER_URL", "https://github.com"),
    "gitlab": ("CI_SERVER_URL", "https://gitlab.com"),
}
"""Variable of its CI with the address of its server, and the usual address, by forge."""
_MERGE_REQUEST = re.compile(r"https?://\S+/-/merge_requests/\d+")
FORM = "/-/merge_requests/new?"
"""Part of the address of the form that GitLab names if no request is open for a branch."""
_MAX_TEXT = 60_000
"""Maximum bytes of the text in its push option: git sends at most 65,516 bytes in a line."""
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_SCP = re.compile(r"(?:[^@/\s]+@)?(?P<host>[^.:/\s][^:/\s]*):(?!//)(?P<path>\S+)")
"""Remote of the form ``user@host:path``."""
_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Request:
    """Pull request to open."""

    branch: str
    base: str
    title: str
    body: str
    marker: str
    """Part of ``body`` that identifies the change."""


@dataclass(frozen=True, slots=True)
class Place:
    """Repository on a server, from the URL of a remote."""

    host: str
    path: str
    """``owner/name`` without ``.git``."""
    scheme: str

    def is_on(self, server: str) -> bool:
        """Return whether it is on exactly this server, e.g. ``https://github.com``."""
        parts = urlsplit(server)
        if self.scheme == "ssh":
            return bool(parts.hostname) and self.host.partition(":")[0] == parts.hostname
        own = urlsplit(f"{self.scheme}://{self.host}")
        sides = [(p.scheme, p.hostname, p.port or _PORTS.get(p.scheme)) for p in (own, parts)]
        return sides[0] == sides[1]


def parse_remote(url: str) -> Place | None:
    """Parse the URL of a remote; None for a folder of this machine."""
    if match := _SCP.fullmatch(url):
        url = f"ssh://{match['host']}/{match['path']}"
    parts = urlsplit(url)
    if parts.scheme == "file" or not parts.hostname:
        return None
    host = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    return Place(host, parts.path.strip("/").removesuffix(".git"), parts.scheme)


def server_of(forge: str, environ: Mapping[str, str]) -> str:
    """Return the address of the web server that the token of a forge is for."""
    variable, usual = _SERVERS[forge]
    return first_variable(environ, variable).rstrip("/") or usual


def first_variable(environ: Mapping[str, str], *names: str) -> str:
    """Return the first of some environment variables that is not blank, else ``""``."""
    return next((environ[name].strip() for name in names if environ.get(name, "").strip()), "")


def run_url(environ: Mapping[str, str]) -> str:
    """Return the address of this CI run, ``""`` outside of CI."""
    if run := first_variable(environ, "GITHUB_RUN_ID"):
        server = server_of("github", environ)
        repository = first_variable(environ, "GITHUB_REPOSITORY")
        url = f"{server}/{repository}/actions/runs/{run}"
    else:
        url = first_variable(environ, "CI_PIPELINE_URL")
    return url if url.startswith("https://") and not set(url) & set(" ()<>\n") else ""


def push_headers(forge: str, environ: Mapping[str, str], *places: Place | None) -> dict[str, str]:
    """Map URL prefixes to the HTTP header with the token, only for git over HTTPS to its server."""
    users = TOKENS.get(forge, {})
    tokens = {name: token for name in users if (token := first_variable(environ, name))}
    if not tokens or not encrypted(server := server_of(forge, environ)):
        return {}
    name, token = next(iter(tokens.items()))
    value = base64.b64encode(f"{users[name]}:{token}".encode()).decode()
    return {
        f"{where.scheme}://{where.host}/": f"Authorization: Basic {value}"
        for where in places
        if where and where.scheme != "ssh" and where.is_on(server)
    }


def encrypted(url: str) -> bool:
    """Return whether a token may be sent there: encrypted, or to this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of ``gh`` to one call."""

    done: bool
    data: Any
    """Answer of the server, parsed; None if it was not JSON."""
    error: str
    """Error in one line, ``""`` without one."""


class GitHub:
    """Pull requests of a repository, by the command ``gh``. Every method is idempotent.

    Args:
        where: repository of the remote.
        environ: environment variables with the repository, the server and the token; a missing
            repository is taken from a remote on that server, for a missing token ``gh`` takes its
            own login.

    Raises:
        UserError: the remote is on another server and no repository is named, or there is no
            ``gh``.
    """

    def __init__(self, where: Place | None, environ: Mapping[str, str]) -> None:
        server = server_of("github", environ)
        repository = first_variable(environ, "GITHUB_REPOSITORY")
        if not repository:
            if where is None:
                raise UserError(
                    "the remote is a folder, where no request can be opened: push only with "
                    "--no-forge, or set GITHUB_REPOSITORY=owner/name if it is a copy"
                )
            if not where.is_on(server):
                raise UserError(
                    f"the remote is on {where.host}, and the token for {server} is sent only "
                    "there: set GITHUB_SERVER_URL if this is your own GitHub server, "
                    "GITHUB_REPOSITORY=owner/name if it is a copy, or push only with --no-forge"
                )
            repository = where.path
        if not _REPOSITORY.fullmatch(repository):
            raise UserError(f"{repository!r} is not a GitHub repository: write owner/name")
        self._repository = repository
        self._host = urlsplit(server).netloc
        self._env = _environment(environ)
        if not shutil.which("gh", path=self._env.get("PATH")):
            raise UserError(
                "requests on GitHub need the command gh, which is not on PATH: install it "
                "(https://cli.github.com), or push only with --no-forge, which prints their text"
            )

    def declined(self, request: Request) -> str:
        """Return the URL of a request for the same change that was closed unmerged, or ``""``."""
        for pull in self._pulls(request.branch, "closed"):
            if not pull.get("merged_at") and request.marker in (pull.get("body") or ""):
                return _url(pull)
        return ""

    def publish(self, request: Request) -> str:
        """Open or update the request for a pushed branch; return its URL."""
        pull = self._find_open(request.branch) or self._create(request)
        number = pull["number"]
        wanted = {"title": request.title, "body": request.body}
        if any(pull.get(key) != value for key, value in wanted.items()):
            self._call("PATCH", f"/pulls/{number}", wanted)
        return _url(pull)

    def _create(self, request: Request) -> dict[str, Any]:
        payload = {
            "title": request.title,
            "body": request.body,
            "head": request.branch,
            "base": request.base,
            "draft": True,
        }
        reply = self._send("POST", "/pulls", payload)
        if not reply.done and "draft" in reply.error.lower():
            # Some plans have no drafts in private repositories.
            reply = self._send("POST", "/pulls", {**payload, "draft": False})
        if not reply.done and (theirs := self._find_open(request.branch)):
            return theirs  # another job opened it in the meantime
        made: dict[str, Any] = self._checked(reply, "POST /pulls")
        return made

    def _find_open(self, branch: str) -> dict[str, Any] | None:
        return next(iter(self._pulls(branch, "open")), None)

    def _pulls(self, branch: str, state: str) -> list[dict[str, Any]]:
        owner = self._repository.partition("/")[0]
        query = urlencode({"state": state, "head": f"{owner}:{branch}", "per_page": 50})
        found = self._call("GET", f"/pulls?{query}")
        # If the head is unknown, the server lists all requests.
        return [p for p in found or [] if (p.get("head") or {}).get("ref") == branch]

    def _call(self, method: str, path: str, payload: Any = None) -> Any:
        reply = self._send(method, path, payload)
        return self._checked(reply, f"{method} {path.partition('?')[0]}")

    def _send(self, method: str, path: str, payload: Any = None) -> Reply:
        """Make one call; texts go to the standard input, and the token is in the environment.

        Raises:
            UserError: ``gh`` does not answer, or is not logged in.
        """
        command = ["gh", "api", "--hostname", self._host, "--method", method]
        command.append(f"repos/{self._repository}{path}")
        data = b""
        if payload is not None:
            command += ["--input", "-"]
            data = json.dumps(payload).encode()
        try:
            # Not in the checkout, whose files are of others.
            done = subprocess.run(
                command,
                input=data,
                env=self._env,
                cwd=tempfile.gettempdir(),
                capture_output=True,
                timeout=TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"gh gave no answer in {TIMEOUT:.0f} s{_AGAIN}") from None
        if done.returncode == _NOT_LOGGED_IN:
            raise UserError(
                "no token for GitHub: set GITHUB_TOKEN (contents and pull-requests: write), log in "
                "with `gh auth login`, or push only with --no-forge"
            )
        found = _parsed(done.stdout)
        error = _error_line(done.stderr, found) if done.returncode else ""
        return Reply(not done.returncode, found, error)

    def _checked(self, reply: Reply, what: str) -> Any:
        if reply.done:
            return reply.data
        raise UserError(f"{what} of {self._repository} failed: {reply.error}{_advice(reply.error)}")


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of ``gh``: with the token, without what changes its output."""
    kept = scrub(environ)
    for name in (*secret_variables(environ), "DEBUG", "CLICOLOR_FORCE"):
        kept.pop(name, None)
    kept = {k: v for k, v in kept.items() if not k.startswith("GH_") or k == "GH_CONFIG_DIR"}
    if token := first_variable(environ, *TOKENS["github"]):
        kept |= {"GH_TOKEN": token, "GH_ENTERPRISE_TOKEN": token}
    return kept | {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1"}


def _parsed(output: bytes) -> Any:
    try:
        return parsed(output)
    except ValueError:
        return None


def _error_line(stderr: bytes, found: Any) -> str:
    """Join the error of ``gh`` and those in the server's answer to one line."""
    errors = found.get("errors") if isinstance(found, dict) else None
    rows = errors if isinstance(errors, list) else []
    parts = [stderr.decode("utf-8", "replace").strip() or "no message"]
    for row in rows:
        message = row.get("message") if isinstance(row, dict) else row
        parts.append(str(message))
    text = "; ".join(parts)
    return " ".join(printable(redact(text)).split())[:500]


def push_options(request: Request) -> tuple[str, ...]:
    """Return the push options that open a request."""
    # Git allows no line break here; GitLab reads \n as one, also if it stands in a text of others.
    text = request.body.replace("\\n", "\\\u200bn")
    text = text.rstrip("\n").replace("\r", "").replace("\n", "\\n")
    if len(whole := text.encode()) > _MAX_TEXT:
        text = whole[:_MAX_TEXT].decode(errors="ignore").rstrip("\\")
    return (
        "merge_request.create",
        f"merge_request.target={request.base}",
        f"merge_request.title={request.title}",
        f"merge_request.description={text}",
        "merge_request.remove_source_branch",
        "merge_request.draft",
    )


def request_url(answer: str) -> str:
    """Find the URL of the request in the server's answer to a push, ``""`` without one."""
    found = _MERGE_REQUEST.search(answer)
    return found[0] if found else ""


def _url(pull: dict[str, Any]) -> str:
    return str(pull.get("html_url") or "")


def _advice(error: str) -> str:
    if "HTTP 401" in error:
        return ": the token is not valid, or has expired"
    if "not permitted to create" in error:
        return (
            ': turn on "Allow GitHub Actions to create and approve pull requests" in Settings, '
            "Actions, General, or use the token of a GitHub App"
        )
    if "rate limit" in error:
        return _AGAIN
    if "HTTP 403" in error or "HTTP 404" in error:
        return ": the token needs contents: write and pull-requests: write on this repository"
    if "HTTP 422" in error:
        return ""
    return _AGAIN
