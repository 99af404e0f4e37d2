"""Open merge requests on GitLab by push options, without a call of its API.

GitLab opens or updates the merge request when it receives the push, and closes it when its branch
is deleted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_skillopt.addons.propose.github import GitHub, encrypted, first
from pytest_skillopt.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt.addons.propose.github import Request

_MERGE_REQUEST = re.compile(r"https?://\S+/-/merge_requests/\S+")
_MAX_TEXT = 60_000
"""Maximum bytes of the text in its push option: git sends at most 65,516 bytes in a line."""


def server_of(environ: Mapping[str, str]) -> str:
    """Return the address of the token's web server, by default ``https://gitlab.com``."""
    return first(environ, "CI_SERVER_URL").rstrip("/") or "https://gitlab.com"


def login_of(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return user and token for git over HTTPS; the token may be empty."""
    token = first(environ, "GITLAB_TOKEN")
    return ("oauth2", token) if token else ("gitlab-ci-token", first(environ, "CI_JOB_TOKEN"))


class GitLab(GitHub):
    """Issues of the project of a CI job, by GitLab's REST API.

    Raises:
        UserError: it is not a job of GitLab, there is no token, or the API is not encrypted.
    """

    _name, _text = "GitLab", "description"

    def __init__(self, environ: Mapping[str, str]) -> None:
        api, project = first(environ, "CI_API_V4_URL"), first(environ, "CI_PROJECT_ID")
        self._token = first(environ, "GITLAB_TOKEN")
        if not (api and project.isdecimal() and self._token):
            raise UserError(
                "an issue on GitLab needs CI_API_V4_URL, CI_PROJECT_ID, which its jobs have, and "
                "GITLAB_TOKEN, a project access token with the scopes api and write_repository"
            )
        if not encrypted(api):
            raise UserError(f"{api} is not encrypted: no token is sent there")
        self._repository = f"project {project}"
        self._url = f"{api.rstrip('/')}/projects/{project}"


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
