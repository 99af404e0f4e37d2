"""Pull requests on GitHub and GitHub Enterprise."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from pytest_skillopt.propose.errors import ProposeError
from pytest_skillopt.propose.forge import basic_auth, first, is_server, may_carry_token
from pytest_skillopt.propose.rest import Client, GhTransport, TokenTransport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt.propose.forge import Place, Request
    from pytest_skillopt.propose.rest import Reply

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_PAGES = 5
_TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")


class GitHub:
    """A repository, ``owner/name``, and a client that may write to its pull requests."""

    def __init__(self, repository: str, client: Client) -> None:
        if not _REPOSITORY.fullmatch(repository):
            raise ProposeError(f"{repository!r} is no GitHub repository: owner/name is expected")
        self._repository = repository
        self._owner = repository.partition("/")[0]
        self._client = client

    @classmethod
    def from_environment(cls, where: Place | None, environ: Mapping[str, str]) -> GitHub:
        """Take repository, address and token from the environment, what is missing from the remote.

        Raises:
            ProposeError: the remote lies elsewhere and no repository is named, or there is neither
                a token nor ``gh``.
        """
        server = server_url(environ)
        named = first(environ, "GITHUB_REPOSITORY")
        if not named and not is_server(where, server):
            raise ProposeError(
                f"the remote {'lies at ' + where.host if where else 'is a folder'}, and the token "
                f"and login for {server} go nowhere else: set GITHUB_SERVER_URL where this is a "
                "GitHub of your own, GITHUB_REPOSITORY=owner/name where it is a copy, or push only "
                "with --no-forge"
            )
        repository = named or (where.path if where else "")
        token = first(environ, *_TOKENS)
        if token:
            api = first(environ, "GITHUB_API_URL") or _api(server)
            if not may_carry_token(api):
                raise ProposeError(f"{api} is not encrypted: no token is sent there")
            return cls(repository, Client(TokenTransport(api, token)))
        if GhTransport.found():
            return cls(repository, Client(GhTransport(urlsplit(server).netloc)))
        raise ProposeError(
            "no token for GitHub: set GITHUB_TOKEN (contents and pull-requests: write), log in "
            "with `gh auth login`, or push only with --no-forge"
        )

    def push_options(self, request: Request) -> tuple[str, ...]:
        return ()

    def declined(self, request: Request) -> str:
        for pull in self._pulls(request.branch, "closed"):
            if not pull.get("merged_at") and request.marker in (pull.get("body") or ""):
                return _url(pull)
        return ""

    def publish(self, request: Request, said: str) -> str:
        pull = self._open(request.branch) or self._create(request)
        number = pull["number"]
        wanted = {"title": request.title, "body": request.body}
        if any(pull.get(key) != value for key, value in wanted.items()):
            self._call("PATCH", f"/pulls/{number}", wanted)
        there = {label.get("name") for label in pull.get("labels") or ()}
        missing = [label for label in request.labels if label not in there]
        if missing:
            self._call("POST", f"/issues/{number}/labels", {"labels": missing})
        return _url(pull)

    def comment(self, branch: str, text: str, marker: str) -> str:
        pull = self._open(branch)
        if pull is None:
            return ""
        path = f"/issues/{pull['number']}/comments"
        for page in range(1, _PAGES + 1):
            comments = self._call("GET", f"{path}?per_page=100&page={page}").data or []
            if any(marker in (comment.get("body") or "") for comment in comments):
                return _url(pull)
            if len(comments) < 100:
                break
        self._call("POST", path, {"body": f"{text}\n\n{marker}"})
        return _url(pull)

    def close(self, branch: str) -> str:
        pull = self._open(branch)
        if pull is None:
            return ""
        self._call("PATCH", f"/pulls/{pull['number']}", {"state": "closed"})
        return _url(pull)

    def _create(self, request: Request) -> dict[str, Any]:
        payload = {
            "title": request.title,
            "body": request.body,
            "head": request.branch,
            "base": request.base,
            "draft": request.draft,
        }
        reply = self._client.call("POST", self._path("/pulls"), payload)
        if reply.status == 422 and request.draft and "draft" in reply.message.lower():
            # Private repositories of some plans have no drafts.
            reply = self._client.call("POST", self._path("/pulls"), {**payload, "draft": False})
        if reply.status == 422 and "already exists" in reply.message:
            # An earlier call arrived although its answer did not.
            pull = self._open(request.branch)
            if pull is not None:
                return pull
        data = self._checked(reply, "POST /pulls").data
        return data if isinstance(data, dict) else {}

    def _open(self, branch: str) -> dict[str, Any] | None:
        return next(iter(self._pulls(branch, "open")), None)

    def _pulls(self, branch: str, state: str) -> list[dict[str, Any]]:
        query = urlencode({"state": state, "head": f"{self._owner}:{branch}", "per_page": 50})
        found = self._call("GET", f"/pulls?{query}").data
        # An unknown head is ignored by the server, which then lists all requests.
        return [p for p in found or [] if (p.get("head") or {}).get("ref") == branch]

    def _call(self, method: str, path: str, payload: Any = None) -> Reply:
        reply = self._client.call(method, self._path(path), payload)
        return self._checked(reply, f"{method} {path.partition('?')[0]}")

    def _path(self, path: str) -> str:
        return f"/repos/{quote(self._repository)}{path}"

    def _checked(self, reply: Reply, what: str) -> Reply:
        if 200 <= reply.status < 300:
            return reply
        raise ProposeError(
            f"GitHub refused {what} of {self._repository} ({reply.status}: {reply.message})"
            + _advice(reply)
        )


def server_url(environ: Mapping[str, str]) -> str:
    """Address of the web server that the token is for, ``https://github.com`` unless named."""
    return first(environ, "GITHUB_SERVER_URL").rstrip("/") or "https://github.com"


def git_headers(where: Place | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Headers for git over HTTPS, where the remote lies on the very server of the token."""
    token, server = first(environ, *_TOKENS), server_url(environ)
    if not token or not is_server(where, server) or not may_carry_token(server):
        return {}
    return basic_auth(where, "x-access-token", token)


def _api(server: str) -> str:
    return "https://api.github.com" if server == "https://github.com" else f"{server}/api/v3"


def _url(pull: dict[str, Any]) -> str:
    return str(pull.get("html_url") or "")


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
        return (
            ": the repository has moved; set GITHUB_REPOSITORY or the remote's URL to its new name"
        )
    return ""
