"""Where a branch becomes a request for review: nowhere by itself, or on GitLab by the push."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCP = re.compile(r"(?:[^@/\s]+@)?(?P<host>[^:/\s]+):(?P<path>[^\s]+)")
_MERGE_REQUEST = re.compile(r"https?://\S+/-/merge_requests/\S+")
_MAX_OPTION = 30_000
"""Characters of one push option: git's protocol carries at most 65,516 bytes a line."""
_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Request:
    """A pull or merge request as it should be."""

    branch: str
    base: str
    title: str
    body: str
    marker: str
    """Stands in ``body`` and names the change."""
    draft: bool = True
    labels: tuple[str, ...] = ("skillopt",)


@dataclass(frozen=True, slots=True)
class Place:
    """A repository on a forge, from the URL of a remote."""

    host: str
    path: str
    """``owner/name`` without ``.git``; deeper on GitLab."""
    scheme: str

    def is_on(self, server: str) -> bool:
        """Whether it lies on exactly this server, e.g. ``https://github.com``."""
        parts = urlsplit(server)
        if self.scheme == "ssh":
            return bool(parts.hostname) and self.host.partition(":")[0] == parts.hostname
        own = urlsplit(f"{self.scheme}://{self.host}")
        sides = [(p.scheme, p.hostname, p.port or _PORTS.get(p.scheme)) for p in (own, parts)]
        return sides[0] == sides[1]


class Forge:
    """What is asked of a forge; this one is none. Everything may be repeated: the end is the same.

    Without a forge the branch is pushed, and whoever opens the request by hand gets its text.
    """

    def headers(self, where: Place | None) -> dict[str, str]:
        """URL prefix to an HTTP header with the token, for git over HTTPS to a remote."""
        return {}

    def push_options(self, request: Request) -> tuple[str, ...]:
        """What a push of the branch carries for the server."""
        return ()

    def declined(self, request: Request) -> str:
        """URL of a request for the same change that a human closed without merging, or ``""``."""
        return ""

    def publish(self, request: Request, said: str) -> str:
        """Open or update the request for a branch that is pushed; its URL where it is known.

        ``said`` is what the server answered to the push.
        """
        return ""

    def close(self, branch: str) -> str:
        """Close the open request of a branch; its URL, ``""`` when there was none."""
        return ""


class GitLab(Forge):
    """Merge requests on GitLab, made by the push itself (push options; no call of its API).

    GitLab opens the merge request, or updates the open one, while it takes the push. It closes one
    whose branch is deleted.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    @staticmethod
    def server(environ: Mapping[str, str]) -> str:
        """Address of the web server that the token is for, ``https://gitlab.com`` unless named."""
        return first(environ, "CI_SERVER_URL").rstrip("/") or "https://gitlab.com"

    def headers(self, where: Place | None) -> dict[str, str]:
        for name, user in (("GITLAB_TOKEN", "oauth2"), ("CI_JOB_TOKEN", "gitlab-ci-token")):
            if token := first(self._environ, name):
                return basic_auth(where, self.server(self._environ), user, token)
        return {}

    def push_options(self, request: Request) -> tuple[str, ...]:
        # GitLab reads a written \n as a line break: git allows no real one.
        text = request.body.rstrip("\n")[:_MAX_OPTION].replace("\r", "").replace("\n", "\\n")
        options = [
            "merge_request.create",
            f"merge_request.target={request.base}",
            f"merge_request.title={request.title}",
            f"merge_request.description={text}",
            "merge_request.remove_source_branch",
            *(f"merge_request.label={label}" for label in request.labels),
        ]
        return (*options, "merge_request.draft") if request.draft else tuple(options)

    def publish(self, request: Request, said: str) -> str:
        found = _MERGE_REQUEST.search(said)
        return found[0] if found else ""


def place(url: str) -> Place | None:
    """Where a remote lies; None for a folder of this machine."""
    if "://" in url:
        parts = urlsplit(url)
        if parts.scheme == "file" or not parts.hostname:
            return None
        host = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
        return Place(host, _trim(parts.path), parts.scheme)
    match = _SCP.fullmatch(url)
    if match is None or url.startswith((".", "/")):
        return None
    return Place(match["host"], _trim(match["path"]), "ssh")


def basic_auth(where: Place | None, server: str, user: str, token: str) -> dict[str, str]:
    """The header with which git pushes over HTTPS to the server of the token, and to no other."""
    if where is None or where.scheme == "ssh" or not where.is_on(server) or not encrypted(server):
        return {}
    value = base64.b64encode(f"{user}:{token}".encode()).decode()
    return {f"{where.scheme}://{where.host}/": f"Authorization: Basic {value}"}


def encrypted(url: str) -> bool:
    """Whether a token may be sent there: encrypted, or to this very machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("127.0.0.1", "::1", "localhost")


def first(environ: Mapping[str, str], *names: str) -> str:
    """The first of some environment variables that is set and not blank."""
    return next((environ[name].strip() for name in names if environ.get(name, "").strip()), "")


def _trim(path: str) -> str:
    return path.strip("/").removesuffix(".git")
