"""Where a branch becomes a request for review: the interface, and the forge that is none."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCP = re.compile(r"(?:[^@/\s]+@)?(?P<host>[^:/\s]+):(?P<path>[^\s]+)")


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


class Forge(Protocol):
    """All that is asked of a forge. Everything may be repeated: the end is the same."""

    def push_options(self, request: Request) -> tuple[str, ...]:
        """What a push of the branch carries for the server."""

    def declined(self, request: Request) -> str:
        """URL of a request for the same change that a human closed without merging, or ``""``."""

    def publish(self, request: Request, said: str) -> str:
        """Open or update the request for a branch that is pushed.

        Args:
            request: as it should be.
            said: what the server answered to the push, ``""`` without one.

        Returns:
            Its URL, ``""`` where it is not known.
        """

    def comment(self, branch: str, text: str, marker: str) -> str:
        """Say something on the open request of a branch, once for each ``marker``; its URL."""

    def close(self, branch: str) -> str:
        """Close the open request of a branch; its URL, ``""`` when there was none."""


class NoForge:
    """Pushes only. The caller prints the text, for whoever opens the request by hand."""

    def push_options(self, request: Request) -> tuple[str, ...]:
        return ()

    def declined(self, request: Request) -> str:
        return ""

    def publish(self, request: Request, said: str) -> str:
        return ""

    def comment(self, branch: str, text: str, marker: str) -> str:
        return ""

    def close(self, branch: str) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Place:
    """A repository on a forge, from the URL of a remote."""

    host: str
    path: str
    """``owner/name`` without ``.git``; deeper on GitLab."""
    scheme: str


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


def basic_auth(where: Place | None, user: str, token: str) -> dict[str, str]:
    """The header with which git pushes over HTTPS, for URLs of that server alone."""
    if where is None or where.scheme not in ("http", "https"):
        return {}
    value = base64.b64encode(f"{user}:{token}".encode()).decode()
    return {f"{where.scheme}://{where.host}/": f"Authorization: Basic {value}"}


def is_server(where: Place | None, server: str) -> bool:
    """Whether a remote lies on exactly this server, e.g. ``https://github.com``."""
    parts = urlsplit(server)
    if where is None or not parts.hostname:
        return False
    if where.scheme == "ssh":
        return where.host.partition(":")[0] == parts.hostname
    port = {"https": 443, "http": 80}
    found = urlsplit(f"{where.scheme}://{where.host}")
    return (found.scheme, found.hostname, found.port or port.get(found.scheme)) == (
        parts.scheme,
        parts.hostname,
        parts.port or port.get(parts.scheme),
    )


def may_carry_token(url: str) -> bool:
    """Whether a token may be sent there: encrypted, or to this very machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("127.0.0.1", "::1", "localhost")


def first(environ: Mapping[str, str], *names: str) -> str:
    """The first of some environment variables that is set and not blank."""
    return next((environ[name].strip() for name in names if environ.get(name, "").strip()), "")


def _trim(path: str) -> str:
    return path.strip("/").removesuffix(".git")
