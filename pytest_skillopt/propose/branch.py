"""One branch for each skill, ``skillopt/<name>``, always a single commit on the base branch.

The branch is ours as long as its tip is a commit that this module made and nobody has touched.
Each carries a trailer ``Skillopt-Proposal`` with a hash over its parent, tree, author, committer,
both dates and message. A commit on top has no such trailer; a merge ("Update branch") has two
parents; an amended, rebased or cherry-picked commit keeps the trailer, and the hash no longer fits.
In all of these cases a human has worked there and the branch is left alone. The hash is a checksum,
not a signature: who can push to the branch could forge it, and would gain nothing.
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_skillopt.propose.git import BRANCHES, Commit, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_skillopt.propose.git import Git, Repository
    from pytest_skillopt.propose.validate import Checked

AUTHOR, MAIL = "pytest-skillopt", "pytest-skillopt@users.noreply.invalid"
TRAILER = "Skillopt-Proposal"
_TRAILER = re.compile(rf"^{TRAILER}: ([0-9a-f]{{64}})\n\Z", re.MULTILINE)

Action = Literal["create", "update", "keep", "delete", "nothing", "human"]


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


def branch_name(skill: str) -> str:
    return f"skillopt/{skill}"


def plan(git: Git, base: str, skill: Checked, message: str) -> Plan:
    """Decide about a skill's branch, and make its commit if it needs one.

    Args:
        git: after a fetch.
        base: id of the commit at the base branch's tip.
        skill: what is proposed.
        message: of the commit, without trailers.
    """
    name = branch_name(skill.name)
    seen = git.resolve(f"{BRANCHES}{skill.name}") or ""
    tip = git.commit(seen) if seen else None
    if tip and not is_ours(tip):
        return Plan("human", name, seen, seen)
    if not skill.changes:
        return Plan("delete" if tip else "nothing", name, seen)
    blob = git.write_blob(skill.after)
    tree = git.tree_with(base, {skill.path: Entry(skill.entry.mode, blob)})
    if tip and tip.parents == (base,) and tip.tree == tree:
        return Plan("keep", name, seen, seen)
    return Plan("update" if tip else "create", name, seen, _commit(git, tree, base, message))


def execute(git: Repository, plan: Plan, *, options: Iterable[str] = ()) -> str:
    """Push what was planned; what the server said to it.

    Raises:
        BranchMoved: the branch is no longer what the plan was made for; nothing was changed.
        ProposeError: the push failed.
    """
    if not plan.pushes:
        return ""
    return git.push(plan.commit, plan.branch, seen=plan.seen, options=options)


def is_ours(commit: Commit) -> bool:
    """Whether a commit is one of this module's, untouched."""
    found = _TRAILER.search(commit.message)
    if found is None or len(commit.parents) != 1:
        return False
    text = commit.message[: found.start()]
    digest = _digest(commit.tree, commit.parents[0], commit.author, commit.committer, text)
    return digest == found[1]


def _commit(git: Git, tree: str, parent: str, message: str) -> str:
    date = f"{int(time.time())} +0000"
    person = f"{AUTHOR} <{MAIL}> {date}"
    text = message.rstrip("\n") + "\n\n"
    trailer = f"{TRAILER}: {_digest(tree, parent, person, person, text)}\n"
    return git.write_commit(tree, parent, text + trailer, author=AUTHOR, mail=MAIL, date=date)


def _digest(tree: str, parent: str, author: str, committer: str, message: str) -> str:
    parts = (tree, parent, author, committer, message)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
