"""Push with git from a temporary bare repository; the user's clone is only read.

The configuration of a clone names programs (filters, hooks, transports, helpers), and any program
that ran in the clone may have written there. So it must not apply when a token is used: the base
branch is fetched into, and the branch is pushed from, a fresh repository in a temporary folder that
shares with the clone only the URL of the remote. Only its ``fetch`` and ``push`` get the token, and
with a token they read no configuration file at all.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pytest_skillopt.errors import UsageError, UserError
from pytest_skillopt.git import Git, GitError, GitFailed, scrub
from pytest_skillopt.plugins.propose.errors import BranchMoved
from pytest_skillopt.plugins.propose.forges import TOKENS, parse_remote
from pytest_skillopt.rollouts.folders import TemporaryFolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_skillopt.git import Clone, Entry

BASE = "refs/skillopt/base"
BRANCHES = "refs/skillopt/branches/"
"""Prefix of the refs to the tips of the remote's ``skillopt/*`` branches."""

_MOVED = (
    "(stale info)",
    "(fetch first)",
    "cannot lock ref",
    "failed to update ref",
    "incorrect old value",
    "reference already exists",
)
"""Messages of git if the branch was changed before or during a push."""

_NAME_CONFLICT = ("exists; cannot create", "directory file conflict")
"""Messages of git and of GitHub if a branch ``skillopt`` stands in the way of ``skillopt/*``."""

_ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


@dataclass(frozen=True, slots=True)
class Remote:
    """A remote of a clone. A URL is the absolute path if it is a local folder."""

    name: str
    fetch_url: str
    push_url: str


class Repository(Git):
    """Temporary bare repository, removed at the end of the ``with`` block.

    It fetches from and pushes to a remote of ``clone``. ``headers`` maps a URL prefix to an HTTP
    header with a token; git gets them in its environment, never in its arguments.
    """

    def __init__(self, clone: Clone, remote: Remote, headers: Mapping[str, str]) -> None:
        self._folder = TemporaryFolder("skillopt-git-")
        super().__init__(self._folder.path / "repository.git", clone.environ)
        self.prefix = clone.prefix
        self._remote = remote.name
        self._fetch_url, self._push_url = (
            # Redirects are not followed with a token, and GitLab redirects a URL without .git.
            f"{url.rstrip('/')}.git" if headers and not url.endswith(".git") else url
            for url in (remote.fetch_url, remote.push_url)
        )
        self.directory.mkdir()
        there = {"GIT_DIR": str(self.directory)}
        self._remote_env = self._reach(headers) | there
        self._env |= _ALONE | there
        self.run("init", "--quiet", "--bare", "--template=", f"--object-format={clone.hashes}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.remove()

    def _reach(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of ``fetch`` and ``push``.

        With a token, git reads no configuration file and runs no helper but its own. Without one,
        the user's configuration determines how to log in.
        """
        local = None in (parse_remote(self._fetch_url), parse_remote(self._push_url))
        allowed = {"GIT_ALLOW_PROTOCOL": "https:http:ssh:git" + (":file" if local else "")}
        if not headers:
            tokens = {name for names in TOKENS.values() for name in names}
            return {k: v for k, v in scrub(self.environ).items() if k not in tokens} | allowed
        helpers = ("GIT_ASKPASS", "GIT_SSH", "SSH_ASKPASS", "GIT_CONFIG")
        env = {k: v for k, v in self._env.items() if not k.startswith(helpers)} | allowed | _ALONE
        config = {f"http.{prefix}.extraheader": header for prefix, header in headers.items()}
        config["http.followRedirects"] = "false"
        for number, (key, value) in enumerate(config.items()):
            env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return env | {"GIT_CONFIG_COUNT": str(len(config))}

    def fetch(self, base: str) -> str:
        """Fetch the tips of the base branch and of ``skillopt/*``; return the id of the former.

        The latter go to :data:`BRANCHES`. Only the latest commits are fetched: a branch of ours is
        a single commit on the base.

        Raises:
            UserError: the remote cannot be reached or has no such branch.
        """
        args = ["fetch", "--quiet", "--depth=1", "--prune", "--no-tags", "--no-write-fetch-head"]
        specs = [f"+refs/heads/{base}:{BASE}", f"+refs/heads/skillopt/*:{BRANCHES}*"]
        try:
            self.complete([*args, "--", self._fetch_url, *specs], self._remote_env)
        except GitFailed as error:
            if "couldn't find remote ref" in error.detail:
                raise UsageError(
                    f"the remote {self._remote} has no branch {base!r}: push it, or name the "
                    "target branch with --base"
                ) from None
            if "invalid refspec" in error.detail:
                raise UsageError(f"{base!r} cannot be a branch: name one with --base") from None
            raise self._unreached(error) from None
        return self.run("rev-parse", "--verify", f"{BASE}^{{commit}}").decode().strip()

    def push(self, source: str, branch: str, *, seen: str, options: Iterable[str] = ()) -> str:
        """Set a branch of the remote, if it is still at ``seen``; return the server's answer.

        ``source`` and ``seen`` are commit ids; an empty ``source`` deletes the branch, an empty
        ``seen`` means that it must not exist. ``options`` are push options.

        Raises:
            BranchMoved: the branch is not at ``seen``.
            UserError: any other failure.
        """
        ref = f"refs/heads/{branch}"
        lease = f"--force-with-lease={ref}:{seen}"
        flags = [f"--push-option={option}" for option in options]
        args = ["push", "--porcelain", "--no-verify", *flags, lease, "--", self._push_url]
        try:
            done = self.complete([*args, f"{source}:{ref}"], self._remote_env)
        except GitFailed as error:
            if any(sign in error.detail for sign in _NAME_CONFLICT):
                raise UserError(
                    f"the remote {self._remote} has a branch named skillopt, so that git can "
                    f"create no {branch}: rename or delete that branch"
                ) from None
            if any(sign in error.detail for sign in _MOVED):
                raise BranchMoved(
                    f"somebody else pushed to {branch} in the meantime; their push was kept"
                ) from None
            if "does not support push options" in error.detail:
                raise UserError(
                    f"the remote {self._remote} is not on GitLab, which opens a request when it "
                    "receives the push: push only with --no-forge"
                ) from None
            if "[remote rejected]" in error.detail:
                said = re.findall(r"^remote: *(.*\S)", error.detail, re.MULTILINE)
                said += re.findall(r"\[remote rejected\] \((.*)\)", error.detail)
                raise UserError(
                    f"the remote {self._remote} refused {branch}: {'; '.join(said)}: a rule for "
                    "branches of that name, or missing rights of the token"
                ) from None
            raise self._unreached(error) from None
        return self.clean(done.stderr)

    def _unreached(self, error: GitFailed) -> GitError:
        return GitError(
            f"{error}\nThe remote {self._remote} must be reachable by git, with a login or a token "
            "that may push branches (GitHub: contents: write; GitLab: write_repository)"
        )


def write(git: Git, data: bytes, kind: str = "blob") -> str:
    """Store a blob or a commit byte for byte; return its id."""
    args = ("hash-object", "-w", "--stdin", "--no-filters", "-t", kind)
    return git.run(*args, input=data).decode().strip()


def mentions(git: Git, commit: str, text: str) -> bool:
    """Tell whether a file of a commit contains a text as a separate word, ignoring case."""
    escaped = re.sub(r"[^\w\s/:@-]", r"[\g<0>]", text).replace("[^]", r"\^")
    pattern = rf"(^|[^[:alnum:]_.-]){escaped}($|[^[:alnum:]_-])"
    return bool(git.run("grep", "-l", "-I", "-i", "-E", "-e", pattern, commit, ok=True))


def commit_head(git: Git, parent: str, files: Mapping[str, Entry]) -> bytes:
    """Write the tree of a commit with some files replaced; return how a commit of it begins."""
    with _index(git, parent) as env:
        lines = [
            f"{entry.mode} {entry.id}\t".encode() + os.fsencode(path) + b"\0"
            for path, entry in files.items()
        ]
        git.run("update-index", "-z", "--index-info", input=b"".join(lines), env=env)
        return b"tree " + git.run("write-tree", env=env) + f"parent {parent}\n".encode()


@contextlib.contextmanager
def _index(git: Git, commit: str) -> Iterator[dict[str, str]]:
    with TemporaryFolder("skillopt-git-") as folder:
        env = {"GIT_INDEX_FILE": str(folder / "index")}
        git.run("read-tree", commit, env=env)
        yield env


def find_remote(clone: Clone, name: str) -> Remote:
    """Return a remote; of several URLs the first.

    Raises:
        UsageError: there is no remote of that name.
    """
    fetch = _url_of(clone, name)
    push = _url_of(clone, name, "--push")
    if not fetch or not push:
        names = clone.run("remote").decode().split()
        there = f"known: {', '.join(names)}" if names else "there is none"
        raise UsageError(
            f"no git remote named {name!r} ({there}): `git remote add {name} URL`, or name "
            "another with --remote"
        )
    return Remote(name, fetch, push)


def _url_of(clone: Clone, remote: str, *options: str) -> str:
    """Return the URL of a remote, the absolute path of a local folder; empty without the remote."""
    url = clone.run("remote", "get-url", *options, "--", remote, ok=True).decode().strip()
    if url and parse_remote(url) is None and not url.startswith("file://"):
        return str((clone.directory / url).resolve())
    return url
