"""A narrow way to git: plumbing only, so that the user's work tree, index and branches stay as is.

Only the object database and the private names ``refs/skillopt/*`` are written to; a tree is built
in an index file of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.propose.errors import BranchMoved, ProposeError
from pytest_skillopt.propose.gitprocess import GitFailed, GitProcess

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_REMOTE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*")

_MOVED = ("(stale info)", "cannot lock ref", "incorrect old value", "reference already exists")
"""How a push says that the branch moved: before it began, or while it ran."""

BASE = "refs/skillopt/base"
"""Where the tip of the base branch is kept after :meth:`Git.fetch`."""
BRANCHES = "refs/skillopt/branches/"
"""Where the tips of the remote's ``skillopt/*`` branches are kept."""


LINK = "120000"
"""Mode of a symbolic link."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a tree: its mode, e.g. ``100644``, and the id of its blob."""

    mode: str
    id: str

    @property
    def is_file(self) -> bool:
        """A regular file: neither a symlink nor a submodule."""
        return self.mode in ("100644", "100755")


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit object as it is stored. ``author`` and ``committer`` hold name, mail and date."""

    id: str
    tree: str
    parents: tuple[str, ...]
    author: str
    committer: str
    message: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Where a training stood."""

    commit: str
    prefix: str
    """The project below the top of the repository, ``""`` or ``dir/``."""
    branch: str = ""
    """Empty with a detached head."""


class Git(GitProcess):
    """The repository that holds ``directory``.

    Args:
        directory: the project; the repository is the one around it.
        environ: the environment to take; default the process's own.

    Raises:
        ProposeError: git is not there, or the directory lies in no repository.
    """

    def __init__(self, directory: Path, *, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, environ)
        try:
            found = self.run("rev-parse", "--show-toplevel", "--show-prefix").decode()
        except GitFailed as error:
            if "not a git repository" in error.detail:
                raise ProposeError(
                    f"{directory} is in no git repository: run `git init` and commit, or run this "
                    "in a clone"
                ) from None
            raise
        top, self.prefix, _ = found.split("\n", 2)
        self.directory = Path(top)

    # reading

    def resolve(self, name: str) -> str | None:
        """Id of the commit that ``name`` points to, or None."""
        found = self.run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", check=False)
        return found.decode().strip() or None

    def branch(self) -> str:
        """The branch that is checked out, ``""`` with a detached head."""
        return self.run("symbolic-ref", "-q", "--short", "HEAD", check=False).decode().strip()

    def is_shallow(self) -> bool:
        return self.run("rev-parse", "--is-shallow-repository").strip() == b"true"

    def changed(self) -> list[str]:
        """Tracked files that differ from the last commit."""
        status = self.run("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames")
        return [os.fsdecode(line[3:]) for line in status.split(b"\0") if line]

    def entry(self, commit: str, path: str) -> Entry | None:
        """What ``path``, seen from the top of the repository, is in a commit."""
        listing = self.run("ls-tree", "-z", "--full-tree", commit, "--", path)
        for line in filter(None, listing.split(b"\0")):
            head, _, name = line.partition(b"\t")
            if os.fsdecode(name) == path:
                mode, _, identity = head.decode().split(" ")
                return Entry(mode, identity)
        return None

    def files(self, commit: str) -> list[str]:
        """Every path of a commit's tree."""
        listing = self.run("ls-tree", "-r", "-z", "--full-tree", "--name-only", commit)
        return [os.fsdecode(name) for name in listing.split(b"\0") if name]

    def read(self, blob: str, *, limit: int) -> bytes:
        """Bytes of a blob.

        Raises:
            ProposeError: it is larger than ``limit`` bytes.
        """
        size = int(self.run("cat-file", "-s", blob))
        if size > limit:
            raise ProposeError(f"git object {blob[:12]} has {size} bytes, more than {limit}")
        return self.run("cat-file", "blob", blob)

    def commit(self, identity: str) -> Commit:
        """Read a commit object."""
        text = self.run("cat-file", "commit", identity).decode("utf-8", "replace")
        head, _, message = text.partition("\n\n")
        fields: dict[str, list[str]] = {}
        for line in head.split("\n"):
            key, _, value = line.partition(" ")
            fields.setdefault(key, []).append(value)
        return Commit(
            id=identity,
            tree=fields["tree"][0],
            parents=tuple(fields.get("parent", ())),
            author=fields["author"][0],
            committer=fields["committer"][0],
            message=message,
        )

    # writing objects

    def write_blob(self, data: bytes) -> str:
        """Store bytes as they are, without filters or line-end conversion."""
        return self.run("hash-object", "-w", "--stdin", "--no-filters", input=data).decode().strip()

    def tree_with(self, commit: str, files: Mapping[str, Entry]) -> str:
        """Id of the tree of ``commit`` with some files put in place of what was there."""
        with self._index(commit) as env:
            lines = [f"{e.mode} {e.id}\t".encode() + os.fsencode(p) for p, e in files.items()]
            self.run("update-index", "-z", "--index-info", input=b"\0".join([*lines, b""]), env=env)
            return self.run("write-tree", env=env).decode().strip()

    def tree_patched(self, commit: str, patch: bytes) -> str:
        """Id of the tree that a patch makes of the tree of ``commit``.

        Raises:
            ProposeError: it does not apply.
        """
        with self._index(commit) as env:
            self.run("apply", "--cached", "--whitespace=nowarn", "-", input=patch, env=env)
            return self.run("write-tree", env=env).decode().strip()

    def write_commit(
        self, tree: str, parent: str, message: str, *, author: str, mail: str, date: str
    ) -> str:
        """Store a commit with one parent. ``date`` is ``<seconds since 1970> +0000``."""
        env: dict[str, str] = {}
        for role in ("AUTHOR", "COMMITTER"):
            env |= {
                f"GIT_{role}_NAME": author,
                f"GIT_{role}_EMAIL": mail,
                f"GIT_{role}_DATE": date,
            }
        written = self.run(
            "commit-tree", tree, "-p", parent, "-F", "-", input=message.encode(), env=env
        )
        return written.decode().strip()

    # the remote

    def remote_url(self, remote: str) -> str:
        """Where a remote lies.

        Raises:
            ProposeError: there is none of that name.
        """
        known = self.run("remote").decode().split()
        if not _REMOTE.fullmatch(remote) or remote not in known:
            there = f"known: {', '.join(known)}" if known else "there is none"
            raise ProposeError(
                f"no git remote named {remote!r} ({there}): `git remote add {remote} URL`, or name "
                "another with --remote"
            )
        return self.run("remote", "get-url", "--", remote).decode().strip()

    def fetch(self, remote: str, base: str) -> None:
        """Bring the base branch to :data:`BASE`, the remote's ``skillopt/*`` to :data:`BRANCHES`.

        Raises:
            ProposeError: the remote cannot be reached or has no such branch.
        """
        self.run("check-ref-format", f"refs/heads/{base}")
        for name in self.run("for-each-ref", "--format=%(refname)", BASE).decode().split():
            self.run("update-ref", "-d", name)
        try:
            self.run(
                "fetch",
                "--quiet",
                "--prune",
                "--no-tags",
                "--no-write-fetch-head",
                "--no-recurse-submodules",
                "--",
                remote,
                f"+refs/heads/{base}:{BASE}",
                f"+refs/heads/skillopt/*:{BRANCHES}*",
            )
        except GitFailed as error:
            if "couldn't find remote ref" in error.detail:
                raise ProposeError(
                    f"the remote {remote} has no branch {base!r}: push it, or name the branch that "
                    "proposals go to with --base"
                ) from None
            raise self._with_shallow_hint(error) from None

    def push(
        self, remote: str, source: str, branch: str, *, seen: str, options: Iterable[str] = ()
    ) -> str:
        """Set a branch of the remote, provided it is still where it was seen.

        Args:
            remote: name of the remote.
            source: id of the commit; ``""`` deletes the branch.
            branch: its name without ``refs/heads/``.
            seen: id of its tip when it was looked at; ``""`` when it was not there.
            options: push options for the server.

        Returns:
            What the server said.

        Raises:
            BranchMoved: it is no longer there.
            ProposeError: any other fault.
        """
        ref = f"refs/heads/{branch}"
        flags = [f"--push-option={option}" for option in options]
        try:
            done = self.complete(
                "push",
                "--porcelain",
                "--no-verify",
                *flags,
                f"--force-with-lease={ref}:{seen}",
                "--",
                remote,
                f"{source}:{ref}",
            )
        except GitFailed as error:
            if any(sign in error.output for sign in _MOVED):
                raise BranchMoved(
                    f"{branch} was pushed to by somebody else in the meantime; their push was kept"
                ) from None
            raise self._with_shallow_hint(error) from None
        return self._clean(done.stderr)

    def _with_shallow_hint(self, error: GitFailed) -> ProposeError:
        if self.is_shallow():
            return ProposeError(
                f"{error}\nThis clone is shallow, which may be why: `git fetch --unshallow`, or "
                "fetch-depth: 0 in actions/checkout"
            )
        return error

    @contextlib.contextmanager
    def _index(self, commit: str) -> Iterator[dict[str, str]]:
        with tempfile.TemporaryDirectory(prefix="skillopt-") as directory:
            env = {"GIT_INDEX_FILE": str(Path(directory, "index"))}
            self.run("read-tree", commit, env=env)
            yield env


def describe(root: Path) -> Facts | None:
    """Where the project stands in git; None without git, repository or commit."""
    try:
        git = Git(root)
    except ProposeError:
        return None
    commit = git.resolve("HEAD")
    return Facts(commit, git.prefix, git.branch()) if commit else None
