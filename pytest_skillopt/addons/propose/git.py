"""Running git: in the user's clone only to look, and in a bare repository of our own for the rest.

The configuration of a clone names programs (filters, hooks, transports, helpers), and whatever ran
in the clone may have written there. So nothing of it is in force where a token is: the base branch
is fetched into, and the branch pushed from, a fresh repository in a temporary folder that shares
nothing with the clone but the URL of the remote. Only its ``fetch`` and ``push`` get the token, and
with a token they read no configuration file at all.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pytest_skillopt.addons.propose import BranchMoved, ProposeError
from pytest_skillopt.untrusted import environment, printable, redact, secret_variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

TIMEOUT = 180.0
"""Seconds after which one git command is given up."""

BASE = "refs/skillopt/base"
BRANCHES = "refs/skillopt/branches/"
"""Where the tips of the remote's ``skillopt/*`` branches are kept."""
LINK = "120000"
"""Mode of a symbolic link."""

_REMOTE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*")
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
_MOVED = (
    "(stale info)",
    "(fetch first)",
    "cannot lock ref",
    "failed to update ref",
    "incorrect old value",
    "reference already exists",
)
"""How a push says that the branch moved: before it began, or while it ran."""

_REACH = re.compile(
    r"GIT_(ASKPASS|CONFIG_(GLOBAL|NOSYSTEM|SYSTEM)|SSH(_COMMAND|_VARIANT)?|SSL_CA(INFO|PATH))"
)
"""Variables of git that say how to reach a remote. All others could redirect what is read or
written, or (the traces) print a token."""
_FORGE_TOKENS = ("GITHUB_TOKEN", "GH_TOKEN", "GITLAB_TOKEN", "CI_JOB_TOKEN")
_ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "commit.gpgSign=false",
    "push.gpgSign=false",
    "push.followTags=false",
    "gc.auto=0",
    "maintenance.auto=false",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a tree: its mode, e.g. ``100644``, and the id of its blob."""

    mode: str
    id: str

    @property
    def is_file(self) -> bool:
        """A regular file: neither a symlink nor a submodule."""
        return self.mode in ("100644", "100755")


class GitFailed(ProposeError):
    """git ended with an error. ``detail`` is all that it said."""

    def __init__(self, verb: str, detail: str) -> None:
        super().__init__(f"git {verb} failed: {detail or 'no message'}")
        self.detail = detail


class Git:
    """A repository, by git: no shell, no prompt, no hook, and no secret in its environment."""

    prefix = ""
    """The project below the top of the repository, ``""`` or ``dir/``."""

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self.directory = directory
        self._environ = environ
        secret = secret_variables(environ)
        self._env = {k: v for k, v in _scrub(environ).items() if k not in secret}

    def run(
        self, *args: str, input: bytes = b"", env: Mapping[str, str] | None = None, ok: bool = False
    ) -> bytes:
        """Standard output of git. With ``ok`` any exit status will do.

        Raises:
            GitFailed: exit status other than 0.
            ProposeError: git is not installed or does not answer.
        """
        return self._complete(args, {**self._env, **(env or {})}, input, ok=ok).stdout

    def _complete(
        self, args: Sequence[str], env: Mapping[str, str], input: bytes = b"", *, ok: bool = False
    ) -> subprocess.CompletedProcess[bytes]:
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        try:
            done = subprocess.run(
                ["git", *settings, *args],
                cwd=self.directory,
                env=env,
                input=input,
                capture_output=True,
                timeout=TIMEOUT,
            )
        except FileNotFoundError:
            if not self.directory.is_dir():
                raise ProposeError(f"there is no directory {self.directory}") from None
            raise ProposeError("git is not installed, or not on PATH") from None
        except subprocess.TimeoutExpired:
            raise ProposeError(f"git {args[0]} gave no answer in {TIMEOUT:.0f} s") from None
        if done.returncode and not ok:
            raise GitFailed(args[0], self._clean(done.stderr + b"\n" + done.stdout))
        return done

    def _clean(self, output: bytes) -> str:
        text = _USERINFO.sub("", output.decode("utf-8", "replace"))
        return printable(redact(text, self._environ)).strip()

    def resolve(self, name: str) -> str | None:
        """Id of the commit that ``name`` points to, or None."""
        found = self.run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", ok=True)
        return found.decode().strip() or None

    def files(self, commit: str) -> dict[str, Entry]:
        """Every file of a commit, by its path from the top of the repository."""
        listing = self.run("ls-tree", "-r", "-z", "--full-tree", commit)
        found = {}
        for line in filter(None, listing.split(b"\0")):
            head, _, name = line.partition(b"\t")
            mode, _, identity = head.decode().split(" ")
            found[os.fsdecode(name)] = Entry(mode, identity)
        return found

    def read(self, blob: str, *, limit: int) -> bytes:
        """Bytes of a blob.

        Raises:
            ProposeError: it is larger than ``limit`` bytes.
        """
        size = int(self.run("cat-file", "-s", blob))
        if size > limit:
            raise ProposeError(f"git object {blob[:12]} has {size} bytes, more than {limit}")
        return self.run("cat-file", "blob", blob)

    def write(self, data: bytes, kind: str = "blob") -> str:
        """Store a blob or a commit, byte for byte; its id."""
        args = ("hash-object", "-w", "--stdin", "--no-filters", "-t", kind)
        return self.run(*args, input=data).decode().strip()

    def mentions(self, commit: str, text: str) -> bool:
        """Whether a text stands, as a word of its own, in a file of a commit; case aside."""
        escaped = re.sub(
            r"[^\w\s/:@-]", lambda m: rf"\{m[0]}" if m[0] == "^" else f"[{m[0]}]", text
        )
        pattern = rf"(^|[^[:alnum:]_.-]){escaped}($|[^[:alnum:]_-])"
        return bool(self.run("grep", "-l", "-I", "-i", "-E", "-e", pattern, commit, ok=True))

    def check_out(self, commit: str, directory: Path) -> None:
        """Write every file of a commit under ``directory``."""
        directory.mkdir()
        with self._index(commit) as env:
            env["GIT_WORK_TREE"] = str(directory)
            self.run("checkout-index", "--all", f"--prefix={directory}/", env=env)

    def tree_with(self, commit: str, files: Mapping[str, Entry]) -> str:
        """Id of the tree of ``commit`` with files put in place of what was there."""
        with self._index(commit) as env:
            lines = [
                f"{entry.mode} {entry.id}\t".encode() + os.fsencode(path) + b"\0"
                for path, entry in files.items()
            ]
            self.run("update-index", "-z", "--index-info", input=b"".join(lines), env=env)
            return self.run("write-tree", env=env).decode().strip()

    @contextlib.contextmanager
    def _index(self, commit: str) -> Iterator[dict[str, str]]:
        with tempfile.TemporaryDirectory(prefix="skillopt-") as directory:
            env = {"GIT_INDEX_FILE": str(Path(directory, "index"))}
            self.run("read-tree", commit, env=env)
            yield env


class Clone(Git):
    """The user's repository around ``directory``. It is only looked at.

    Args:
        directory: the project.
        environ: the environment to take; default the process's own.

    Raises:
        ProposeError: git is not there, or the directory lies in no repository.
    """

    def __init__(self, directory: Path, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, environment() if environ is None else environ)
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

    def is_shallow(self) -> bool:
        return self.run("rev-parse", "--is-shallow-repository").strip() == b"true"

    def branch(self) -> str:
        """The branch that is checked out, ``""`` with a detached head."""
        return self.run("symbolic-ref", "-q", "--short", "HEAD", ok=True).decode().strip()

    def remote_url(self, remote: str, *, push: bool = False) -> str:
        """Where a remote lies, a folder of this machine as an absolute path.

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
        flags = ["--push"] if push else []
        url = self.run("remote", "get-url", *flags, "--", remote).decode().strip()
        local = is_local(url) and not url.startswith("file://")
        return str((self.directory / url).resolve()) if local else url


class Repository(Git):
    """A bare repository of our own, gone when the ``with`` block ends.

    It fetches from and pushes to a remote of ``clone``. ``headers`` maps a URL prefix to an HTTP
    header that holds a token; they go to git in its environment, never in its arguments.

    Raises:
        ProposeError: no such remote.
    """

    def __init__(self, clone: Clone, remote: str, headers: Mapping[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="skillopt-")
        super().__init__(Path(self._folder.name, "repository.git"), clone._environ)
        self.prefix = clone.prefix
        self._remote = remote
        self._fetch_url, self._push_url = (
            # No redirect is followed with a token, and GitLab answers with one to a bare name.
            f"{url.rstrip('/')}.git" if headers and not url.endswith(".git") else url
            for url in (clone.remote_url(remote), clone.remote_url(remote, push=True))
        )
        self._remote_env = self._reach(headers)
        self.directory.mkdir()
        self._env |= _ALONE
        hashes = clone.run("rev-parse", "--show-object-format").decode().strip()
        self.run("init", "--quiet", "--bare", "--template=", f"--object-format={hashes}")
        for env in (self._env, self._remote_env):
            env["GIT_DIR"] = str(self.directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def _reach(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The environment of ``fetch`` and ``push``.

        With a token no configuration file is read and no helper can run: whatever git starts then
        is git's own. Without one the user's own configuration says how to log in.
        """
        local = is_local(self._fetch_url) or is_local(self._push_url)
        allowed = {"GIT_ALLOW_PROTOCOL": "https:http:ssh:git" + (":file" if local else "")}
        if not headers:
            env = {k: v for k, v in _scrub(self._environ).items() if k not in _FORGE_TOKENS}
            return env | allowed
        pairs = [(f"http.{prefix}.extraheader", header) for prefix, header in headers.items()]
        pairs.append(("http.followRedirects", "false"))
        helpers = ("GIT_ASKPASS", "GIT_SSH", "SSH_ASKPASS", "GIT_CONFIG")
        env = {k: v for k, v in self._env.items() if not k.startswith(helpers)}
        return env | allowed | _ALONE | _config(pairs)

    def fetch(self, base: str) -> str:
        """Bring over the tip of the base branch, whose id is returned, and the remote's
        ``skillopt/*`` to :data:`BRANCHES`.

        Their latest commits only: a branch of ours is one commit on the base.

        Raises:
            ProposeError: the remote cannot be reached or has no such branch.
        """
        self.run("check-ref-format", f"refs/heads/{base}")
        self.run("update-ref", "-d", BASE)
        args = ["fetch", "--quiet", "--depth=1", "--prune", "--no-tags", "--no-write-fetch-head"]
        specs = [f"+refs/heads/{base}:{BASE}", f"+refs/heads/skillopt/*:{BRANCHES}*"]
        try:
            self._complete([*args, "--", self._fetch_url, *specs], self._remote_env)
        except GitFailed as error:
            if "couldn't find remote ref" in error.detail:
                raise ProposeError(
                    f"the remote {self._remote} has no branch {base!r}: push it, or name the "
                    "branch that proposals go to with --base"
                ) from None
            raise
        return self.run("rev-parse", "--verify", f"{BASE}^{{commit}}").decode().strip()

    def push(self, source: str, branch: str, *, seen: str, options: Iterable[str] = ()) -> str:
        """Set a branch of the remote, provided it is still where it was seen; the server's answer.

        ``source`` and ``seen`` are ids of commits; ``""`` deletes the branch, and stands for one
        that was not there. ``options`` are push options.

        Raises:
            BranchMoved: it is no longer there.
            ProposeError: any other fault.
        """
        ref = f"refs/heads/{branch}"
        lease = f"--force-with-lease={ref}:{seen}"
        flags = [f"--push-option={option}" for option in options]
        args = ["push", "--porcelain", "--no-verify", *flags, lease, "--", self._push_url]
        try:
            done = self._complete([*args, f"{source}:{ref}"], self._remote_env)
        except GitFailed as error:
            if any(sign in error.detail for sign in _MOVED):
                raise BranchMoved(
                    f"{branch} was pushed to by somebody else in the meantime; their push was kept"
                ) from None
            raise
        return self._clean(done.stderr)


def project_prefix(root: Path) -> str | None:
    """The project below the top of its repository; None without git, repository or commit."""
    try:
        clone = Clone(root)
    except ProposeError:
        return None
    return clone.prefix if clone.resolve("HEAD") else None


def is_local(url: str) -> bool:
    """Whether a remote is a folder of this machine."""
    if url.startswith("file://"):
        return True
    return "://" not in url and (url.startswith(("/", ".")) or ":" not in url.split("/", 1)[0])


def _scrub(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in environ.items() if not k.startswith("GIT_") or _REACH.fullmatch(k)}
    return kept | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C",
    }


def _config(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    env = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for number, (key, value) in enumerate(pairs):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env
