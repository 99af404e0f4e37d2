"""One branch for each skill, ``skillopt/<name>``, always a single commit on the base branch.

The branch is ours as long as its tip is a commit that this module made and nobody has touched.
Each carries a trailer ``Skillopt-Proposal`` with a hash over the rest of the commit object. A
commit or a merge ("Update branch") on top has no such trailer; an amended, rebased or cherry-picked
one keeps it, and the hash no longer fits. In all of these cases a human has worked there and the
branch is left alone. The hash is a checksum, not a signature: who can push to the branch could
forge it, and would gain nothing.
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_skillopt.propose.git import BRANCHES, Entry
from pytest_skillopt.propose.validate import beside
from pytest_skillopt.skill.document import SKILL_FILE

if TYPE_CHECKING:
    from pytest_skillopt.propose.git import Git
    from pytest_skillopt.propose.validate import Checked

AUTHOR, MAIL = "pytest-skillopt", "pytest-skillopt@users.noreply.invalid"
_TRAILER = re.compile(rb"^Skillopt-Proposal: ([0-9a-f]{64})\n\Z", re.MULTILINE)

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


def plan(git: Git, base: str, skill: Checked, message: str) -> Plan:
    """Decide about a skill's branch, and make its commit if it needs one.

    ``git`` has fetched, ``base`` is the id of the base branch's tip, ``message`` has no trailers.
    """
    name = f"skillopt/{skill.name}"
    seen = git.resolve(f"{BRANCHES}{skill.name}") or ""
    tip = git.run("cat-file", "commit", seen) if seen else b""
    if tip and not is_ours(tip):
        return Plan("human", name, seen, seen)
    if not skill.changes:
        return Plan("delete" if tip else "nothing", name, seen)
    blobs = {}
    for file in skill.after.names:
        if skill.after.file(file) != skill.before.file(file):
            path = beside(skill.path, file)
            mode = skill.entry.mode if file == SKILL_FILE else "100644"
            blobs[path] = Entry(mode, git.write(skill.after.file(file).data))
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
