"""Open requests for review on GitHub and GitHub Enterprise, and on GitLab.

GitHub has a REST API. GitLab opens or updates a merge request by push options when it receives the
push, and closes it when its branch is deleted.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from pytest_skillopt.errors import UserError
from pytest_skillopt.untrusted import printable, redact

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT = 30.0
"""Maximum seconds of one call."""
ATTEMPTS = 5
"""Attempts of one call, after pauses of 1, 2, 4 and 8 s."""
TOKENS = {
    "github": {"GITHUB_TOKEN": "x-access-token", "GH_TOKEN": "x-access-token"},
    "gitlab": {"GITLAB_TOKEN": "oauth2", "CI_JOB_TOKEN": "gitlab-ci-token"},
}
"""By forge, the variables that may hold a token, and the name of the user for git with it."""
_SERVERS = {
    "github": ("GITHUB_SERVER_URL", "https://github.com"),
    "gitlab": ("CI_SERVER_URL", "https://gitlab.com"),
}
"""By forge, the variable of its CI with the address of its server, and the usual one."""
_MERGE_REQUEST = re.compile(r"https?://\S+/-/merge_requests/\S+")
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
    draft: bool
    labels: tuple[str, ...]


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


def place(url: str) -> Place | None:
    """Parse the URL of a remote; None for a folder of this machine."""
    match = _SCP.fullmatch(url)
    parts = urlsplit(f"ssh://{match['host']}/{match['path']}" if match else url)
    if parts.scheme == "file" or not parts.hostname:
        return None
    host = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    return Place(host, parts.path.strip("/").removesuffix(".git"), parts.scheme)


def server_of(forge: str, environ: Mapping[str, str]) -> str:
    """Return the address of the web server that the token of a forge is for."""
    variable, usual = _SERVERS[forge]
    return first(environ, variable).rstrip("/") or usual


def first(environ: Mapping[str, str], *names: str) -> str:
    """Return the first of some environment variables that is not blank, else ``""``."""
    return next((environ[name].strip() for name in names if environ.get(name, "").strip()), "")


def run_url(environ: Mapping[str, str]) -> str:
    """Return the address of this CI run, ``""`` outside of CI."""
    if run := first(environ, "GITHUB_RUN_ID"):
        server, repository = server_of("github", environ), first(environ, "GITHUB_REPOSITORY")
        url = f"{server}/{repository}/actions/runs/{run}"
    else:
        url = first(environ, "CI_PIPELINE_URL")
    return url if url.startswith("https://") and not set(url) & set(" ()<>\n") else ""


def push_headers(forge: str, environ: Mapping[str, str], *places: Place | None) -> dict[str, str]:
    """Map URL prefixes to the HTTP header with the token, only for git over HTTPS to its server."""
    users = TOKENS.get(forge, {})
    tokens = {name: token for name in users if (token := first(environ, name))}
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
    """Answer to one call; ``status`` is 0 if there was none, and ``data`` says why."""

    status: int
    data: Any = None

    @classmethod
    def of(cls, status: int, body: bytes) -> Reply:
        try:
            return cls(status, json.loads(body) if body.strip() else None)
        except ValueError:
            return cls(status, body[:500].decode("utf-8", "replace"))

    @property
    def message(self) -> str:
        """Error message of the server, in one line."""
        errors = self.data.get("errors") if isinstance(self.data, dict) else None
        rows = [self.data, *(errors if isinstance(errors, list) else ())]
        parts = [row.get("message") if isinstance(row, dict) else row for row in rows]
        text = "; ".join(str(part) for part in parts if part) or "no message"
        return " ".join(printable(redact(text)).split())[:500]

    @property
    def passes(self) -> bool:
        """Whether it is a fault that passes: no answer, one of the server, or a rate limit."""
        limited = self.status == 403 and "rate limit" in self.message.lower()
        return limited or self.status in (0, 429) or self.status >= 500


class _AsItIs(urllib.request.HTTPErrorProcessor):
    """Handler that follows no redirect, whose target would get the token, and raises no error."""

    def http_response(self, request: Any, response: Any) -> Any:
        return response

    https_response = http_response


_OPENER = urllib.request.build_opener(_AsItIs)


class GitHub:
    """Pull requests of a repository. Every method is idempotent.

    Args:
        where: repository of the remote.
        environ: environment variables with the repository, the server and the token; a missing
            repository is taken from a remote on that server, a missing token from ``gh``.

    Raises:
        UserError: the remote is on another server and no repository is named, or there is no
            token.
    """

    _name, _text = "GitHub", "body"

    def __init__(self, where: Place | None, environ: Mapping[str, str]) -> None:
        server = server_of("github", environ)
        repository = first(environ, "GITHUB_REPOSITORY")
        if not repository:
            if where is None:
                raise UserError(
                    "the remote is a folder, where no request or issue can be opened: push only "
                    "with --no-forge, or set GITHUB_REPOSITORY=owner/name if it is a copy"
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
        token = first(environ, *TOKENS["github"]) or _login(urlsplit(server).netloc)
        if not token:
            raise UserError(
                "no token for GitHub: set GITHUB_TOKEN (contents and pull-requests: write), log in "
                "with `gh auth login`, or push only with --no-forge"
            )
        api = first(environ, "GITHUB_API_URL") or (
            "https://api.github.com" if server == "https://github.com" else f"{server}/api/v3"
        )
        self._connect(f"{api.rstrip('/')}/repos/{quote(repository)}", token)

    def _connect(self, url: str, token: str) -> None:
        if not encrypted(url):
            raise UserError(f"{url} is not encrypted: no token is sent there")
        self._url, self._token = url, token

    def declined(self, request: Request) -> str:
        """Return the URL of a request for the same change that was closed unmerged, or ``""``."""
        for pull in self._pulls(request.branch, "closed"):
            if not pull.get("merged_at") and request.marker in (pull.get("body") or ""):
                return _url(pull)
        return ""

    def publish(self, request: Request) -> str:
        """Open or update the request for a pushed branch; return its URL."""
        pull = self._open(request.branch) or self._create(request)
        number = pull["number"]
        wanted = {"title": request.title, "body": request.body}
        if any(pull.get(key) != value for key, value in wanted.items()):
            self._call("PATCH", f"/pulls/{number}", wanted)
        there = {label.get("name") for label in pull.get("labels") or ()}
        if missing := [label for label in request.labels if label not in there]:
            self._call("POST", f"/issues/{number}/labels", {"labels": missing})
        return _url(pull)

    def close(self, branch: str) -> str:
        """Close the open request of a branch; return its URL, ``""`` if there is none."""
        if pull := self._open(branch):
            self._call("PATCH", f"/pulls/{pull['number']}", {"state": "closed"})
        return _url(pull or {})

    def _create(self, request: Request) -> dict[str, Any]:
        payload = {
            "title": request.title,
            "body": request.body,
            "head": request.branch,
            "base": request.base,
            "draft": request.draft,
        }
        reply = self._send("POST", "/pulls", payload)
        if reply.status == 422 and request.draft and "draft" in reply.message.lower():
            # Some plans have no drafts in private repositories.
            reply = self._send("POST", "/pulls", {**payload, "draft": False})
        # An earlier call may have succeeded, and its answer was lost.
        exists = reply.status == 422 and "already exists" in reply.message
        if exists and (pull := self._open(request.branch)):
            return pull
        made: dict[str, Any] = self._checked(reply, "POST /pulls").data
        return made

    def _open(self, branch: str) -> dict[str, Any] | None:
        return next(iter(self._pulls(branch, "open")), None)

    def _pulls(self, branch: str, state: str) -> list[dict[str, Any]]:
        owner = self._repository.partition("/")[0]
        query = urlencode({"state": state, "head": f"{owner}:{branch}", "per_page": 50})
        found = self._call("GET", f"/pulls?{query}").data
        # If the head is unknown, the server lists all requests.
        return [p for p in found or [] if (p.get("head") or {}).get("ref") == branch]

    def _call(self, method: str, path: str, payload: Any = None) -> Reply:
        reply = self._send(method, path, payload)
        return self._checked(reply, f"{method} {path.partition('?')[0]}")

    def _send(self, method: str, path: str, payload: Any = None) -> Reply:
        """Make one call; repeat it after network errors, server errors and rate limits.

        Raises:
            UserError: all attempts failed.
        """
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(2.0 ** (attempt - 1))
            reply = self._attempt(method, path, payload)
            if not reply.passes:
                return reply
        what = f"answered {reply.status}" if reply.status else "did not answer"
        raise UserError(
            f"{self._name} {what} ({reply.message}): run this again later, it continues where it "
            "stopped"
        )

    def _attempt(self, method: str, path: str, payload: Any) -> Reply:
        request = urllib.request.Request(
            self._url + path,
            method=method,
            data=None if payload is None else json.dumps(payload).encode(),
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
                "User-Agent": "pytest-skillopt",
                "X-GitHub-Api-Version": "2022-11-28",
            },
        )
        try:
            with _OPENER.open(request, timeout=TIMEOUT) as response:
                return Reply.of(response.status, response.read())
        except (http.client.HTTPException, OSError) as error:
            return Reply(0, str(getattr(error, "reason", error)) or type(error).__name__)

    def _checked(self, reply: Reply, what: str) -> Reply:
        if 200 <= reply.status < 300:
            return reply
        raise UserError(
            f"{self._name} refused {what} of {self._repository} ({reply.status}: {reply.message})"
            + _advice(reply)
        )


def push_options(request: Request) -> tuple[str, ...]:
    """Return the push options that open a request."""
    # Git allows no line break here; GitLab reads \n as one.
    text = request.body.rstrip("\n").replace("\r", "").replace("\n", "\\n")
    if len(whole := text.encode()) > _MAX_TEXT:
        text = whole[:_MAX_TEXT].decode(errors="ignore").rstrip("\\")
    return (
        "merge_request.create",
        f"merge_request.target={request.base}",
        f"merge_request.title={request.title}",
        f"merge_request.description={text}",
        "merge_request.remove_source_branch",
        *(f"merge_request.label={label}" for label in request.labels),
        *(["merge_request.draft"] if request.draft else []),
    )


def request_url(said: str) -> str:
    """Find the URL of the request in the server's answer to the push, ``""`` without one."""
    found = _MERGE_REQUEST.search(said)
    return found[0] if found else ""


def _login(host: str) -> str:
    """Return the token of the program ``gh`` for a host, ``""`` without one."""
    try:
        command = ["gh", "auth", "token", "--hostname", host]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout.strip()


def _url(pull: dict[str, Any]) -> str:
    return str(pull.get("html_url") or pull.get("web_url") or "")


def _advice(reply: Reply) -> str:
    if reply.status == 401:
        return ": the token is not valid, or has expired"
    if reply.status == 403 and "not permitted to create" in reply.message:
        return (
            ': turn on "Allow GitHub Actions to create and approve pull requests" in Settings, '
            "Actions, General, or use the token of a GitHub App"
        )
    if reply.status in (403, 404):
        return ": the token needs contents: write and pull-requests: write on this repository"
    if 300 <= reply.status < 400:
        return ": the repository has moved; set GITHUB_REPOSITORY or the remote to its new name"
    return ""
