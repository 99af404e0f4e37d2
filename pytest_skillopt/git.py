"""Run git on the user's repository or on one of the package's own.

The configuration of a repository names programs (filters, hooks, transports, helpers), and anything
that ran in it may have changed it. So git starts none of them on its own, and no secret is in its
environment.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.errors import UserError
from pytest_skillopt.untrusted import environment, printable, redact, secret_variables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

TIMEOUT = 180.0
"""Time limit of one git command, in seconds."""


_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
_REACH = re.compile(
    r"GIT_(ASKPASS|CONFIG_(GLOBAL|NOSYSTEM|SYSTEM)|SSH(_COMMAND|_VARIANT)?|SSL_CA(INFO|PATH))"
)
"""Variables of git that are needed to reach a remote. All others could redirect reads and writes,
or (the traces) print a token."""
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "commit.gpgSign=false",
    "push.gpgSign=false",
    "push.followTags=false",
    "gc.auto=0",
    "maintenance.auto=false",
)


class GitError(UserError):
    """A problem with git or the repository."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a tree: its mode, e.g. ``100644``, and the id of its blob."""

    mode: str
    id: str

    @property
    def is_file(self) -> bool:
        """A regular file: neither a symlink nor a submodule."""
        return self.mode in ("100644", "100755")

    @property
    def is_link(self) -> bool:
        return self.mode == _LINK


_LINK, _SUBMODULE = "120000", "160000"
"""Modes of entries in a tree."""
_HOPS = 40
"""Most links that are followed for one path, as on Linux."""
_TARGET_LIMIT = 4_096
"""Most bytes of the path that a link holds."""


class GitFailed(GitError):
    """An error exit of git; ``detail`` is its output."""

    def __init__(self, verb: str, detail: str) -> None:
        super().__init__(f"git {verb} failed: {detail or 'no message'}")
        self.detail = detail


class Git:
    """A repository, accessed by git without shell, prompts, hooks or secrets."""

    prefix = ""
    """Path of the project inside the repository: ``""`` or ``dir/``."""

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self.directory = directory
        self.environ = environ
        secret = secret_variables(environ)
        self._env = {k: v for k, v in scrub(environ).items() if k not in secret}

    def run(
        self, *args: str, input: bytes = b"", env: Mapping[str, str] | None = None, ok: bool = False
    ) -> bytes:
        """Run git and return its standard output.

        Raises:
            GitFailed: the exit status is not 0 and ``ok`` is false.
            GitError: git is not installed, cannot be started, or does not answer.
        """
        return self.complete(args, {**self._env, **(env or {})}, input, ok=ok).stdout

    def complete(
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
                raise GitError(f"there is no directory {self.directory}") from None
            raise GitError("git is not installed, or not on PATH") from None
        except OSError as error:
            raise GitError(f"git cannot be started: {error.strerror or error}") from None
        except subprocess.TimeoutExpired:
            raise GitError(f"git {args[0]} gave no answer in {TIMEOUT:.0f} s") from None
        if done.returncode and not ok:
            raise GitFailed(args[0], self.clean(done.stderr + b"\n" + done.stdout))
        return done

    def clean(self, output: bytes) -> str:
        text = _USERINFO.sub("", output.decode("utf-8", "replace"))
        return printable(redact(text, self.environ)).strip()

    def resolve(self, name: str) -> str | None:
        """Return the id of the commit that ``name`` points to, or None."""
        found = self.run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", ok=True)
        commits = found.decode().split()  # several of a range
        return commits[0] if len(commits) == 1 else None

    def files(self, commit: str) -> dict[str, Entry]:
        """Return every file of a commit, by its path from the top of the repository."""
        listed = self.run("ls-tree", "-r", "-z", "--full-tree", commit)
        found = {}
        for line in filter(None, listed.split(b"\0")):
            head, _, name = line.partition(b"\t")
            mode, _, identity = head.decode().split(" ")
            found[os.fsdecode(name)] = Entry(mode, identity)
        return found

    def read(self, blob: str, *, limit: int) -> bytes:
        """Return the bytes of a blob.

        Raises:
            GitError: the blob is larger than ``limit`` bytes, or a partial clone lacks it.
        """
        try:
            size = int(self.run("cat-file", "-s", blob))
        except GitFailed:
            if not self.run("config", "--get-regexp", r"^remote\..*\.promisor$", ok=True):
                raise
            fetch = f"clone without --filter, or fetch it with `git cat-file -p {blob}`"
            raise GitError(f"this partial clone lacks git object {blob[:12]}: {fetch}") from None
        if size > limit:
            raise GitError(f"git object {blob[:12]} has {size} bytes, more than {limit}")
        return self.run("cat-file", "blob", blob)


class Tree:
    """The files of a commit, with links followed as the system follows them on disk.

    Paths are relative to the top of the repository, with ``/``.
    """

    def __init__(self, git: Git, commit: str) -> None:
        self._git = git
        self.files = git.files(commit)
        self._folders = {""}
        for path in self.files:
            while (path := path.rpartition("/")[0]) not in self._folders:
                self._folders.add(path)

    def real(self, path: str) -> str | None:
        """Return the path of a file or folder without links; None if there is none.

        Raises:
            GitError: it lies in a submodule.
        """
        ahead = path.split("/")[::-1]
        done: list[str] = []
        hops = 0
        while ahead:
            part = ahead.pop()
            if part in ("", "."):
                continue
            if part == "..":
                if not done:
                    return None
                done.pop()
                continue
            place = "/".join([*done, part])
            entry = self._entry(place)
            if entry is None and place not in self._folders:
                return None
            if entry and entry.is_link:
                hops += 1
                target = os.fsdecode(self._git.read(entry.id, limit=_TARGET_LIMIT))
                if hops > _HOPS or target.startswith("/"):
                    return None
                ahead += target.split("/")[::-1]
                continue
            done.append(part)
        return "/".join(done)

    def place(self, path: str) -> str:
        """Return the path of a file, or of a new one, without links.

        Raises:
            GitError: it lies in a submodule.
        """
        folder, _, name = path.rpartition("/")
        inside = self.real(folder)
        return self.real(path) or (f"{inside}/{name}" if inside else path)

    def _entry(self, place: str) -> Entry | None:
        entry = self.files.get(place)
        if entry and entry.mode == _SUBMODULE:
            raise GitError(
                f"{place} is a submodule, whose files are in another repository: run this in "
                "that one"
            )
        return entry

    def beneath(self, folder: str, above: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
        """Yield the files of a folder: path in it, and real path.

        Links to files and folders are followed, but to none of the folders ``above``.
        """
        start = f"{folder}/" if folder else ""
        for path, entry in self.files.items():
            if not path.startswith(start):
                continue
            name = path.removeprefix(start)
            if entry.is_file:
                yield name, path
            elif entry.is_link and (target := self.real(path)) is not None:
                if target not in self._folders:
                    yield name, target
                elif target not in (*above, folder) and len(above) < _HOPS:
                    inner = self.beneath(target, (*above, folder))
                    yield from ((f"{name}/{rest}", real) for rest, real in inner)


class Clone(Git):
    """The user's repository around ``directory``; it is only read. ``hashes``: sha1 or sha256.

    Raises:
        GitError: git is not installed, or the directory is not in a repository.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, environment())
        try:
            # A path may hold any character, a line break too: the way up has only dots and slashes.
            asked = self.run("rev-parse", "--show-object-format", "--show-cdup", "--show-prefix")
        except GitFailed as error:
            if "not a git repository" in error.detail:
                raise GitError(
                    f"{directory} is not in a git repository: run `git init` and commit, or run "
                    "this in a clone"
                ) from None
            raise
        self.hashes, up, prefix = os.fsdecode(asked).split("\n", 2)
        self.prefix = prefix.removesuffix("\n")
        self.directory = (directory.resolve() / up).resolve()

    def ignores(self, path: Path) -> bool:
        """Tell whether a file is neither tracked nor could be added without force."""
        # It refuses literal pathspecs, and takes the names of its input literally.
        env = {k: v for k, v in self._env.items() if k != "GIT_LITERAL_PATHSPECS"}
        name = os.fsencode(path) + b"\0"
        return bool(self.complete(["check-ignore", "-z", "--stdin"], env, name, ok=True).stdout)

    def is_shallow(self) -> bool:
        return self.run("rev-parse", "--is-shallow-repository").strip() == b"true"


def scrub(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program that git or a forge needs.

    Without variables that redirect it, and without relative folders of PATH: in a checkout these
    hold programs of others.
    """
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    kept = {k: v for k, v in environ.items() if not k.startswith("GIT_") or _REACH.fullmatch(k)}
    return kept | {
        "PATH": os.pathsep.join(filter(os.path.isabs, folders)),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C",
    }
