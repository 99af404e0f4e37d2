"""From a proposal to requests for review: check, plan, push, open. May be repeated at any point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_skillopt.propose import BranchMoved, ProposeError
from pytest_skillopt.propose.base import read_base
from pytest_skillopt.propose.body import compose, marker, title
from pytest_skillopt.propose.branch import plan
from pytest_skillopt.propose.forge import Forge, GitLab, Request, first, place
from pytest_skillopt.propose.git import Clone, Repository
from pytest_skillopt.propose.github import GitHub
from pytest_skillopt.propose.validate import load, validate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_skillopt.propose.branch import Action, Plan
    from pytest_skillopt.propose.forge import Place
    from pytest_skillopt.propose.validate import Checked, Proposal

ForgeName = Literal["auto", "github", "gitlab", "none"]
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
    forge: ForgeName = "auto"
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
        ProposeError: no git, no remote, no base branch, no forge that could be told.
    """

    def __init__(self, root: Path, options: Options, environ: Mapping[str, str]) -> None:
        self._options = options
        self._environ = environ
        self._clone = Clone(root, environ)
        self._base = options.base or self._checked_out()
        where = place(self._clone.remote_url(options.remote))
        pushed = place(self._clone.remote_url(options.remote, push=True))
        kind = forge_name(options.forge, where, environ)
        self._forge = Forge()
        if kind == "github":
            self._forge = GitHub(where, environ)
        elif kind == "gitlab":
            self._forge = GitLab(environ)
        headers = self._forge.headers(where) | self._forge.headers(pushed)
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
        request = self._request(skill, proposal)
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
            return Outcome(skill, request, made.action, self._forge.close(made.branch))
        if url := self._forge.declined(request):
            return Outcome(skill, request, "declined", url)
        said = self._push(made, self._forge.push_options(request))
        return Outcome(skill, request, made.action, self._forge.publish(request, said))

    def _push(self, made: Plan, options: tuple[str, ...] = ()) -> str:
        if not made.pushes:
            return ""
        return self._git.push(made.commit, made.branch, seen=made.seen, options=options)

    def _request(self, skill: Checked, proposal: Proposal) -> Request:
        simulated = proposal.manifest.simulated
        body = compose(skill, proposal.body, simulated=simulated, run_url=run_url(self._environ))
        return Request(
            branch=f"skillopt/{skill.name}",
            base=self._base,
            title=title(skill),
            body=body,
            marker=marker(skill),
            draft=self._options.draft,
            labels=self._options.labels,
        )

    def _checked_out(self) -> str:
        branch = self._clone.branch()
        if branch and not branch.startswith("skillopt/"):
            return branch
        problem = "HEAD is detached, so the branch that proposals go to is not known"
        if branch:
            problem = f"{branch} is checked out, which is itself a proposal"
        raise ProposeError(f"{problem}: name where proposals go with --base, e.g. --base main")


def forge_name(wanted: ForgeName, where: Place | None, environ: Mapping[str, str]) -> ForgeName:
    """Which forge it is: as asked for, as the CI says, as the remote's host says.

    Raises:
        ProposeError: none of them says.
    """
    if wanted != "auto":
        return wanted
    if environ.get("GITHUB_ACTIONS") == "true":
        return "github"
    if environ.get("GITLAB_CI") == "true":
        return "gitlab"
    if where and where.is_on(GitHub.server(environ)):
        return "github"
    if where and where.is_on(GitLab.server(environ)):
        return "gitlab"
    raise ProposeError(
        f"cannot tell which forge {where.host if where else 'a local remote'} is: name it with "
        "--forge (and its address with GITHUB_SERVER_URL or CI_SERVER_URL), or push only with "
        "--no-forge"
    )


def run_url(environ: Mapping[str, str]) -> str:
    """Address of the CI run that this is, ``""`` outside of CI."""
    if run := first(environ, "GITHUB_RUN_ID"):
        server = first(environ, "GITHUB_SERVER_URL") or "https://github.com"
        url = f"{server}/{first(environ, 'GITHUB_REPOSITORY')}/actions/runs/{run}"
    else:
        url = first(environ, "CI_PIPELINE_URL")
    return url if url.startswith("https://") and not set(url) & set(" ()<>\n") else ""
