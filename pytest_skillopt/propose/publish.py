"""From a proposal to requests for review: check, plan, push, open. May be repeated at any point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_skillopt.propose import BranchMoved, ProposeError
from pytest_skillopt.propose.base import read_base
from pytest_skillopt.propose.body import compose, marker, title
from pytest_skillopt.propose.branch import plan
from pytest_skillopt.propose.git import Clone, Repository
from pytest_skillopt.propose.github import GitHub, Request, first, place, push_headers, server_of
from pytest_skillopt.propose.validate import load, validate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_skillopt.propose.branch import Action, Plan
    from pytest_skillopt.propose.validate import Checked, Proposal

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
    forge: bool = True
    """Open the request; else push the branch alone."""
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
        self._github = GitHub(where, environ) if options.forge else None
        headers = push_headers(environ, where, pushed) if options.forge else {}
        self._git = Repository(self._clone, options.remote, headers)

    def publish(self) -> list[Outcome]:
        """Check the proposal and bring it to the remote.

        Raises:
            Refused: the proposal is not to be trusted; nothing was pushed.
            ProposeError: git or GitHub failed; to run again is safe.
        """
        with self._git:
            proposal = load(self._options.proposal)
            return [self._publish(skill, proposal) for skill in self._check(proposal)]

    def _check(self, proposal: Proposal) -> list[Checked]:
        self._tip = self._git.fetch(self._base)
        return validate(proposal, read_base(self._git, self._tip))

    def _publish(self, skill: Checked, proposal: Proposal) -> Outcome:
        simulated = proposal.manifest.simulated
        body = compose(skill, proposal.body, simulated=simulated, run_url=_run_url(self._environ))
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
        github, url = self._github, ""
        if made.action in ("delete", "nothing"):
            self._push(made)
            if github:
                url = github.close(made.branch)
        elif github and (url := github.declined(request)):
            return Outcome(skill, request, "declined", url)
        else:
            self._push(made)
            if github:
                url = github.publish(request)
        return Outcome(skill, request, made.action, url)

    def _push(self, made: Plan) -> None:
        if made.pushes:
            self._git.push(made.commit, made.branch, seen=made.seen)

    def _checked_out(self) -> str:
        branch = self._clone.branch()
        if branch and not branch.startswith("skillopt/"):
            return branch
        problem = "HEAD is detached, so the branch that proposals go to is not known"
        if branch:
            problem = f"{branch} is checked out, which is itself a proposal"
        raise ProposeError(f"{problem}: name where proposals go with --base, e.g. --base main")


def _run_url(environ: Mapping[str, str]) -> str:
    """Address of the run of GitHub Actions that this is, ``""`` outside of one."""
    run = first(environ, "GITHUB_RUN_ID")
    url = f"{server_of(environ)}/{first(environ, 'GITHUB_REPOSITORY')}/actions/runs/{run}"
    return url if run and url.startswith("https://") and not set(url) & set(" ()<>\n") else ""
