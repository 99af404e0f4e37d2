"""Publish a proposal as requests for review: check, plan, push, open. It is idempotent.

There is one branch for each skill, ``skillopt/<name>``, always a single commit on the base branch.
A commit of this module names it as the committer. One on top, a merge, and an amended, rebased or
cherry-picked one name whoever made them: then somebody else has changed the branch, and it is not
touched. Anyone who can push to the branch could forge that, but would gain nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_skillopt.errors import UserError
from pytest_skillopt.git import Clone, Entry
from pytest_skillopt.plugins.propose import forges
from pytest_skillopt.plugins.propose.base import read_base
from pytest_skillopt.plugins.propose.body import compose, marker, title
from pytest_skillopt.plugins.propose.errors import BranchMoved
from pytest_skillopt.plugins.propose.git import (
    BRANCHES,
    Repository,
    commit_head,
    find_remote,
    write,
)
from pytest_skillopt.plugins.propose.validate import load, validate

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_skillopt.plugins.propose.base import Base
    from pytest_skillopt.plugins.propose.forges import Place, Request
    from pytest_skillopt.plugins.propose.validate import CheckedSkill, Proposal

_AUTHOR = "pytest-skillopt <pytest-skillopt@users.noreply.invalid>"

Action = Literal["create", "update", "keep", "delete", "nothing", "human"]
ForgeName = Literal["github", "gitlab", "none"]
_MESSAGE = """Proposed by pytest-skillopt. Measured on samples of the suite, and checked again
against the base branch before it was pushed.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result for one skill."""

    skill: CheckedSkill
    request: Request
    action: Action | Literal["declined"]
    url: str = ""
    """Address of the request, ``""`` if there is none or it is unknown."""


class Publisher:
    """Publisher of one project's proposals.

    Args:
        root: the project's root directory.
        args: arguments of a command: ``base``, target branch of requests (``""``: the one that is
            checked out); ``remote``, name of the git remote; ``no_forge``: push, but open no
            request.

    Raises:
        UserError: git, the remote, the base branch, or a repository or token is missing.
    """

    def __init__(self, root: Path, args: argparse.Namespace) -> None:
        clone = Clone(root)
        self._environ = environ = clone.environ
        self._base: str = args.base or _checked_out(clone)
        remote = find_remote(clone, args.remote)
        where = forges.parse_remote(remote.fetch_url)
        pushed = forges.parse_remote(remote.push_url)
        self._forge: ForgeName = "none" if args.no_forge else _forge(where, environ)
        self._github = forges.GitHub(where, environ) if self._forge == "github" else None
        headers = forges.push_headers(self._forge, environ, where, pushed)
        self._git = Repository(clone, remote, headers)

    def publish(self, directory: Path) -> Iterator[Outcome]:
        """Check the proposal in a directory and publish it, one skill after the other.

        Raises:
            Refused: the proposal is invalid; nothing was pushed.
            UserError: git or the forge failed; it is safe to run again.
        """
        with self._git:
            proposal = load(directory)
            for skill in self._check(proposal):
                yield self._publish(skill, proposal)

    def _check(self, proposal: Proposal) -> list[CheckedSkill]:
        self._tip = read_base(self._git, self._git.fetch(self._base))
        return validate(proposal, self._tip)

    def _publish(self, skill: CheckedSkill, proposal: Proposal) -> Outcome:
        run_url = forges.run_url(self._environ)
        body = compose(skill, simulated=proposal.result.simulated, run_url=run_url)
        request = forges.Request(
            branch=f"skillopt/{skill.branch}",
            base=self._base,
            title=title(skill),
            body=body,
            marker=marker(skill),
        )
        try:
            return self._act(skill, request)
        except BranchMoved:
            # The push came from a person or from another run of this job: check again.
            again = {checked.path: checked for checked in self._check(proposal)}
            return self._act(again[skill.path], request)

    def _act(self, skill: CheckedSkill, request: Request) -> Outcome:
        made = plan(self._tip, skill, request.title)
        ends = made.action in ("delete", "nothing")
        if made.action == "human":
            return Outcome(skill, request, made.action)
        if self._github and not ends and (url := self._github.declined(request)):
            return Outcome(skill, request, "declined", url)
        answer = ""
        options = tuple[str, ...]()
        if made.action in ("create", "update", "delete"):
            if self._forge == "gitlab" and not ends:
                options = forges.push_options(request)
            answer = self._git.push(made.commit, request.branch, seen=made.seen, options=options)
        if ends:  # a forge closes the request of a branch that is deleted
            return Outcome(skill, request, made.action)
        url = self._github.publish(request) if self._github else forges.request_url(answer)
        if options and not url:
            raise self._unopened(request.branch, made.commit, answer)
        return Outcome(skill, request, made.action, url)

    def _unopened(self, branch: str, commit: str, answer: str) -> UserError:
        """Return the error that GitLab opened no request; delete the branch if none is open.

        GitLab opens a request only when it receives a push: beside the branch as it should be, no
        later command would push one.
        """
        words = " ".join(answer.replace("remote:", "").split())
        done = "was pushed"
        way = "Open one by hand, or correct that, delete the branch, and repeat"
        if forges.FORM in answer:
            self._git.push("", branch, seen=commit)
            done = "was deleted again"
            way = "Correct that, and repeat"
        return UserError(
            f"{branch} {done}, and GitLab opened no request for it: {words}\n{way} the command"
        )


def _checked_out(clone: Clone) -> str:
    branch = clone.run("symbolic-ref", "-q", "--short", "HEAD", ok=True).decode().strip()
    if branch and not branch.startswith("skillopt/"):
        return branch
    problem = f"{branch} is itself a proposal" if branch else "HEAD is detached"
    raise UserError(f"{problem}: name the target branch, e.g. --base main")


def _forge(where: Place | None, environ: Mapping[str, str]) -> ForgeName:
    """Return GitLab if the CI or the remote's host is GitLab, else GitHub."""
    if environ.get("GITHUB_ACTIONS") == "true":
        return "github"
    there = where is not None and where.is_on(forges.server_of("gitlab", environ))
    return "gitlab" if environ.get("GITLAB_CI") == "true" or there else "github"


@dataclass(frozen=True, slots=True)
class Plan:
    """Planned action for one branch, from the state of the remote when it was fetched."""

    action: Action
    """``keep``: the branch has this proposal already; ``delete``: so has the base branch;
    ``nothing``: only the base branch has it; ``human``: somebody else has changed the branch."""
    seen: str
    """Id of the branch's fetched tip, ``""`` without a branch."""
    commit: str = ""
    """Id of the commit to push, ``""`` without one."""


def plan(base: Base, skill: CheckedSkill, subject: str) -> Plan:
    """Decide about a skill's branch, and make its commit with this first line if it needs one.

    The commit names the version that it proposes: only the branch of that version is deleted once
    the base branch has it, not the branch of another proposal.
    """
    git = base.git
    proposed = f"Version: {skill.after.digest}"
    seen = git.resolve(f"{BRANCHES}{skill.branch}") or ""
    tip = git.run("cat-file", "commit", seen) if seen else b""
    if tip and not is_ours(tip):
        return Plan("human", seen)
    if not skill.changed:
        if proposed.encode() in tip.splitlines():  # it was merged
            return Plan("delete", seen)
        return Plan("nothing", seen)
    blobs = {}
    for file in skill.changed:
        place = skill.place(file)
        data = skill.after[file].data
        mode = base.tree.files[place].mode if place in base.tree.files else "100644"
        blobs[place] = Entry(mode, write(git, data))
    head = commit_head(git, base.commit, blobs)
    if tip.startswith(head):
        return Plan("keep", seen)
    person = f"{_AUTHOR} {int(time.time())} +0000"
    message = f"{subject}\n\n{_MESSAGE}\n{proposed}\n"
    made = head + f"author {person}\ncommitter {person}\n\n{message}".encode()
    commit = write(git, made, "commit")
    action: Action = "update" if tip else "create"
    return Plan(action, seen, commit)


def is_ours(commit: bytes) -> bool:
    """Return whether a commit object is one of this module."""
    return f"\ncommitter {_AUTHOR} ".encode() in commit.partition(b"\n\n")[0]
