"""From a proposal to requests for review: check, plan, push, open. May be repeated at any point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_skillopt.propose import BranchMoved, ProposeError, github, gitlab
from pytest_skillopt.propose.base import read_base
from pytest_skillopt.propose.body import compose, marker, title
from pytest_skillopt.propose.branch import plan
from pytest_skillopt.propose.git import Clone, Repository
from pytest_skillopt.propose.github import GitHub, Request, first, place, push_headers
from pytest_skillopt.propose.validate import load, validate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_skillopt.propose.branch import Action, Plan
    from pytest_skillopt.propose.github import Place
    from pytest_skillopt.propose.validate import Checked, Proposal

ForgeName = Literal["github", "gitlab", "none"]
_MESSAGE = """Proposed by pytest-skillopt. Measured on samples of the suite, and checked again
against the base branch before it was pushed.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for."""

    proposal: Path
    base: str = ""
    """The branch that requests go to; ``""``: the one that is checked out."""
    remote: str = "origin"
    forge: ForgeName | None = None
    """Where requests are opened; None: as the CI or the remote's host says."""
    draft: bool = True
    labels: tuple[str, ...] = ("skillopt",)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one skill."""

    skill: Checked
    request: Request
    action: Action | Literal["declined"]
    url: str = ""
    """Of the request, ``""`` where there is none or it is not known."""


class Publisher:
    """Publishes the proposals of one project.

    ``environ`` holds tokens and what a CI says of itself.

    Raises:
        ProposeError: no git, no remote, no base branch, no repository or token for requests.
    """

    def __init__(self, root: Path, options: Options, environ: Mapping[str, str]) -> None:
        self._options = options
        self._environ = environ
        self._clone = Clone(root, environ)
        self._base = options.base or self._checked_out()
        where = place(self._clone.remote_url(options.remote))
        pushed = place(self._clone.remote_url(options.remote, push=True))
        self._forge = options.forge or _forge(where, environ)
        self._github = GitHub(where, environ) if self._forge == "github" else None
        headers = {}
        if self._forge != "none":
            made = gitlab if self._forge == "gitlab" else github
            server, login = made.server_of(environ), made.login_of(environ)
            headers = push_headers(server, login, where, pushed)
        self._git = Repository(self._clone, options.remote, headers)

    def publish(self) -> list[Outcome]:
        """Check the proposal and bring it to the remote.

        Raises:
            Refused: the proposal is not to be trusted; nothing was pushed.
            ProposeError: git or the forge failed; to run again is safe.
        """
        with self._git:
            proposal = load(self._options.proposal)
            return [self._publish(skill, proposal) for skill in self._check(proposal)]

    def _check(self, proposal: Proposal) -> list[Checked]:
        self._tip = self._git.fetch(self._base)
        return validate(proposal, read_base(self._git, self._tip))

    def _publish(self, skill: Checked, proposal: Proposal) -> Outcome:
        body = compose(skill, proposal.result, _run_url(self._environ))
        request = Request(
            branch=f"skillopt/{skill.name}",
            base=self._base,
            title=title(skill),
            body=body,
            marker=marker(skill),
            draft=self._options.draft,
            labels=self._options.labels,
        )
        try:
            return self._act(skill, request)
        except BranchMoved:
            # Somebody was faster. Another look tells a human from another run of this job.
            again = {checked.name: checked for checked in self._check(proposal)}
            return self._act(again[skill.name], request)

    def _act(self, skill: Checked, request: Request) -> Outcome:
        made = plan(self._git, self._tip, skill, f"{request.title}\n\n{_MESSAGE}")
        if made.action == "human":
            return Outcome(skill, request, "human")
        if made.action in ("delete", "nothing"):
            self._push(made)
            url = self._github.close(made.branch) if self._github else ""
        elif self._github:
            if url := self._github.declined(request):
                return Outcome(skill, request, "declined", url)
            self._push(made)
            url = self._github.publish(request)
        else:
            options = gitlab.push_options(request) if self._forge == "gitlab" else ()
            url = gitlab.request_url(self._push(made, options))
        return Outcome(skill, request, made.action, url)

    def _push(self, made: Plan, options: tuple[str, ...] = ()) -> str:
        if not made.pushes:
            return ""
        return self._git.push(made.commit, made.branch, seen=made.seen, options=options)

    def _checked_out(self) -> str:
        branch = self._clone.branch()
        if branch and not branch.startswith("skillopt/"):
            return branch
        problem = "HEAD is detached, so the branch that proposals go to is not known"
        if branch:
            problem = f"{branch} is checked out, which is itself a proposal"
        raise ProposeError(f"{problem}: name where proposals go with --base, e.g. --base main")


def _forge(where: Place | None, environ: Mapping[str, str]) -> ForgeName:
    """GitLab where the CI or the remote's host says so, else GitHub."""
    if environ.get("GITHUB_ACTIONS") == "true":
        return "github"
    there = where is not None and where.is_on(gitlab.server_of(environ))
    return "gitlab" if environ.get("GITLAB_CI") == "true" or there else "github"


def _run_url(environ: Mapping[str, str]) -> str:
    """Address of the CI run that this is, ``""`` outside of CI."""
    if run := first(environ, "GITHUB_RUN_ID"):
        server, repository = github.server_of(environ), first(environ, "GITHUB_REPOSITORY")
        url = f"{server}/{repository}/actions/runs/{run}"
    else:
        url = first(environ, "CI_PIPELINE_URL")
    return url if url.startswith("https://") and not set(url) & set(" ()<>\n") else ""
