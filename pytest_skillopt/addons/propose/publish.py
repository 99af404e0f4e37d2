"""From a proposal to requests for review: check, plan, push, open. May be repeated at any point.

There is one branch for each skill, ``skillopt/<name>``, always a single commit on the base branch.
It is ours as long as its tip is a commit that this module made and nobody has touched. Each carries
a trailer ``Skillopt-Proposal`` with a hash over the rest of the commit object. A commit or a merge
on top has no such trailer; an amended, rebased or cherry-picked one keeps it, and the hash no
longer fits. In all of these cases a human has worked there and the branch is left alone. The hash
is a checksum, not a signature: who can push to the branch could forge it, and would gain nothing.
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_skillopt.addons.propose import BranchMoved, ProposeError, github, gitlab
from pytest_skillopt.addons.propose.base import read_base
from pytest_skillopt.addons.propose.body import compose, marker, title
from pytest_skillopt.addons.propose.git import BRANCHES, Repository
from pytest_skillopt.addons.propose.github import GitHub, Request, first, place, push_headers
from pytest_skillopt.addons.propose.validate import beside, load, validate
from pytest_skillopt.git import Clone, Entry
from pytest_skillopt.skill.document import SKILL_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_skillopt.addons.propose.github import Place
    from pytest_skillopt.addons.propose.validate import Checked, Proposal
    from pytest_skillopt.git import Git

AUTHOR, MAIL = "pytest-skillopt", "pytest-skillopt@users.noreply.invalid"
_TRAILER = re.compile(rb"^Skillopt-Proposal: ([0-9a-f]{64})\n\Z", re.MULTILINE)

Action = Literal["create", "update", "keep", "delete", "nothing", "human"]
ForgeName = Literal["github", "gitlab", "none"]
_MESSAGE = """Proposed by pytest-skillopt. Measured on samples of the suite, and checked again
against the base branch before it was pushed.
"""


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

    Args:
        environ: holds tokens and what a CI says of itself.
        base: the branch that requests go to; ``""``: the one that is checked out.
        forge: where requests are opened; None: as the CI or the remote's host says.
        dry_run: check and plan, and stop before anything is pushed or a forge is called.

    Raises:
        ProposeError: no git, no remote, no base branch, no repository or token for requests.
    """

    def __init__(
        self,
        root: Path,
        environ: Mapping[str, str],
        *,
        base: str,
        remote: str,
        forge: ForgeName | None,
        dry_run: bool = False,
    ) -> None:
        self._environ = environ
        self._dry_run = dry_run
        self._clone = Clone(root, environ)
        self._base = base or self._checked_out()
        where = place(self._clone.remote_url(remote))
        pushed = place(self._clone.remote_url(remote, push=True))
        self._forge = forge or _forge(where, environ)
        called = self._forge == "github" and not dry_run
        self._github = GitHub(where, environ) if called else None
        headers = {}
        if self._forge != "none":
            made = gitlab if self._forge == "gitlab" else github
            server, login = made.server_of(environ), made.login_of(environ)
            headers = push_headers(server, login, where, pushed)
        self._git = Repository(self._clone, remote, headers)

    def publish(self, directory: Path, *, draft: bool, labels: tuple[str, ...]) -> list[Outcome]:
        """Check the proposal in a directory and bring it to the remote.

        Raises:
            Refused: the proposal is not to be trusted; nothing was pushed.
            ProposeError: git or the forge failed; to run again is safe.
        """
        with self._git:
            proposal = load(directory)
            return [self._publish(s, proposal, draft, labels) for s in self._check(proposal)]

    def _check(self, proposal: Proposal) -> list[Checked]:
        self._tip = self._git.fetch(self._base)
        return validate(proposal, read_base(self._git, self._tip))

    def _publish(
        self, skill: Checked, proposal: Proposal, draft: bool, labels: tuple[str, ...]
    ) -> Outcome:
        request = Request(
            branch=f"skillopt/{skill.name}",
            base=self._base,
            title=title(skill),
            body=compose(skill, proposal.result, _run_url(self._environ)),
            marker=marker(skill),
            draft=draft,
            labels=labels,
        )
        try:
            return self._act(skill, request)
        except BranchMoved:
            # Somebody was faster. Another look tells a human from another run of this job.
            again = {checked.name: checked for checked in self._check(proposal)}
            return self._act(again[skill.name], request)

    def _act(self, skill: Checked, request: Request) -> Outcome:
        made = plan(self._git, self._tip, skill, f"{request.title}\n\n{_MESSAGE}")
        if made.action == "human" or self._dry_run:
            return Outcome(skill, request, made.action)
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
        problem = f"{branch} is itself a proposal" if branch else "HEAD is detached"
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


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with one branch, decided from one look at the remote."""

    action: Action
    """``create``; ``update``; ``keep``: it holds this very proposal; ``delete``: nothing is left to
    propose; ``nothing``: neither a branch nor anything to propose; ``human``: left alone."""
    branch: str
    seen: str
    """Id of the tip that was looked at, ``""`` without a branch."""
    commit: str = ""
    """Id of the commit that the branch holds afterwards, ``""`` when it is gone."""

    @property
    def pushes(self) -> bool:
        return self.action in ("create", "update", "delete")


def plan(git: Git, base: str, skill: Checked, message: str) -> Plan:
    """Decide about a skill's branch, and make its commit if it needs one.

    ``git`` has fetched, ``base`` is the id of the base branch's tip, ``message`` has no trailers.
    """
    name = f"skillopt/{skill.name}"
    seen = git.resolve(f"{BRANCHES}{skill.name}") or ""
    tip = git.run("cat-file", "commit", seen) if seen else b""
    if tip and not is_ours(tip):
        return Plan("human", name, seen, seen)
    if not skill.changed:
        return Plan("delete" if tip else "nothing", name, seen)
    blobs = {}
    for file in skill.changed:
        mode = skill.entry.mode if file == SKILL_FILE else "100644"
        blobs[beside(skill.path, file)] = Entry(mode, git.write(skill.after.file(file).data))
    head = f"tree {git.tree_with(base, blobs)}\nparent {base}\n".encode()
    if tip.startswith(head):
        return Plan("keep", name, seen, seen)
    return Plan("update" if tip else "create", name, seen, _commit(git, head, message))


def is_ours(commit: bytes) -> bool:
    """Whether a commit object is one of this module's, untouched."""
    found = _TRAILER.search(commit)
    return found is not None and _trailer(commit[: found.start()]) == found[0]


def _commit(git: Git, head: bytes, message: str) -> str:
    person = f"{AUTHOR} <{MAIL}> {int(time.time())} +0000"
    text = message.rstrip("\n")
    body = head + f"author {person}\ncommitter {person}\n\n{text}\n\n".encode()
    return git.write(body + _trailer(body), "commit")


def _trailer(commit: bytes) -> bytes:
    return b"Skillopt-Proposal: %s\n" % hashlib.sha256(commit).hexdigest().encode()
