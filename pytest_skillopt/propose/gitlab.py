"""Merge requests on GitLab, made by the push itself (push options; no call of its API).

GitLab opens the merge request, or updates the open one, while it takes the push. It closes one
whose branch is deleted. A comment has no push option.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_skillopt.propose.forge import basic_auth, first, is_server, may_carry_token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt.propose.forge import Place, Request

_URL = re.compile(r"https?://\S+/-/merge_requests/\S+")
_MAX_OPTION = 30_000
"""Characters of one option: git's protocol carries at most 65,516 bytes a line."""


class GitLab:
    """A project on GitLab; who may push is known to git."""

    def push_options(self, request: Request) -> tuple[str, ...]:
        options = [
            "merge_request.create",
            f"merge_request.target={request.base}",
            f"merge_request.title={request.title}",
            # GitLab reads a written \n as a line break: git allows no real one.
            f"merge_request.description={_one_line(request.body)}",
            "merge_request.remove_source_branch",
            *(f"merge_request.label={label}" for label in request.labels),
        ]
        if request.draft:
            options.append("merge_request.draft")
        return tuple(options)

    def declined(self, request: Request) -> str:
        return ""

    def publish(self, request: Request, said: str) -> str:
        found = _URL.search(said)
        return found[0] if found else ""

    def comment(self, branch: str, text: str, marker: str) -> str:
        return ""

    def close(self, branch: str) -> str:
        return ""


def server_url(environ: Mapping[str, str]) -> str:
    """Address of the web server that the token is for, ``https://gitlab.com`` unless named."""
    return first(environ, "CI_SERVER_URL").rstrip("/") or "https://gitlab.com"


def git_headers(where: Place | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Headers for git over HTTPS, where the remote lies on the very server of the token."""
    server = server_url(environ)
    if not is_server(where, server) or not may_carry_token(server):
        return {}
    if token := first(environ, "GITLAB_TOKEN"):
        return basic_auth(where, "oauth2", token)
    if token := first(environ, "CI_JOB_TOKEN"):
        return basic_auth(where, "gitlab-ci-token", token)
    return {}


def _one_line(text: str) -> str:
    text = text.rstrip("\n")[:_MAX_OPTION]
    return text.replace("\r", "").replace("\n", "\\n")
