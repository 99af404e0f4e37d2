"""Merge requests on GitLab, made by the push itself: push options, and no call of its API.

GitLab opens the merge request, or updates the open one, while it takes the push, and closes one
whose branch is deleted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_skillopt.addons.propose.github import first

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt.addons.propose.github import Request

_MERGE_REQUEST = re.compile(r"https?://\S+/-/merge_requests/\S+")
_MAX_TEXT = 60_000
"""Bytes of the request's text in its push option: git carries at most 65,516 bytes a line."""


def server_of(environ: Mapping[str, str]) -> str:
    """Address of the web server that the token is for, ``https://gitlab.com`` unless named."""
    return first(environ, "CI_SERVER_URL").rstrip("/") or "https://gitlab.com"


def login_of(environ: Mapping[str, str]) -> tuple[str, str]:
    """User and token for git over HTTPS, empty without one."""
    token = first(environ, "GITLAB_TOKEN")
    return ("oauth2", token) if token else ("gitlab-ci-token", first(environ, "CI_JOB_TOKEN"))


def push_options(request: Request) -> tuple[str, ...]:
    """What a push of the branch carries for the server."""
    # GitLab reads a written \n as a line break: git allows no real one.
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
    """URL of the request in what the server answered to the push, ``""`` without one."""
    found = _MERGE_REQUEST.search(said)
    return found[0] if found else ""
