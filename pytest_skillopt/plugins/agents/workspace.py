"""Prepare the folder in which an agent works, find what a run changed, and repeat it.

A run is cached as a text, with its changes to files.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import io
import itertools
import json
import os
import posixpath
import stat
import uuid
import zlib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from pytest_skillopt.model.agent import ToolRun  # noqa: TC001 - pydantic reads it
from pytest_skillopt.model.types import Usage
from pytest_skillopt.plugins.agents.tree import Entry, Tree, is_git
from pytest_skillopt.skill.document import SKILL_FILE, Document, SkillError
from pytest_skillopt.skill.files import AGENT_FOLDERS, MAX_SKILL_BYTES
from pytest_skillopt.untrusted import encodable, redact

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    Changes = dict[str, Entry | None]

_UNASKED = (
    *(f"{place}/{name}" for place in (*AGENT_FOLDERS, ".copilot") for name in ("skills", "skill")),
    *(f"{name}.md" for name in ("CLAUDE", "CLAUDE.local", "AGENTS", "GEMINI", "QWEN", "COPILOT")),
)
"""Files and folders that harnesses read by themselves, also in parent folders."""
_ROOM = 20_000_000
"""Maximum bytes of changed content, and characters of all, with which a run is cached."""
_DIFFED_BYTES, _MOST_DIFF = 200_000, 100_000
_ABSENT = Entry(0)
_KINDS = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)


class Workspace:
    """Workspace with what is under test in it; other copies of that are removed.

    Args:
        root: the folder; no link in it is followed.
        skills: folder in it where the harness looks for skills.
        laid: files of each skill by path, by the skill's name.
        copied: folder to copy into the workspace first.
        tested: name of the skill under test, empty if there is none.
        documents: contents of files to write, by path; an empty one is not written.
        replaced: paths of files that must not be there beside ``documents``.

    Raises:
        OSError: it cannot be read or written, or has a link instead of a folder.
    """

    def __init__(
        self,
        root: Path,
        skills: str,
        laid: Mapping[str, Mapping[str, bytes]],
        copied: Path | None,
        tested: str,
        documents: Mapping[str, bytes],
        replaced: Collection[str],
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root, self.tree, self.placed = root, Tree(root), list[str]()
        self._documents = {path: data for path, data in documents.items() if data}
        self._folders = list[str]()
        self.changed: list[str] = []
        """Changed paths found by ``look``, including folders and git's own files."""
        try:
            if copied is not None:
                self.tree.copy(copied)
            for path in replaced:
                with contextlib.suppress(FileNotFoundError):
                    self.tree.remove(path)
            if tested:
                self._remove_copies(tested)
            for name, files in laid.items():
                self._lay(f"{skills}/{name}", files)
            for path in documents:
                with self.tree.folder(posixpath.dirname(path), make=True):
                    self._folders.append(posixpath.dirname(path))
            for path, data in self._documents.items():
                self.tree.write(path, data, stat.S_IFREG | 0o644)
                self.placed.append(path)
            self._hide_from_git()
            self._laid = self._digests()
            self.before = self.after = self._snapshot()
        except BaseException:
            self.close()
            raise

    @property
    def digest(self) -> str:
        """SHA-256 of the workspace and what is laid in it; empty if not all can be read."""
        if not all(entry.is_known for entry in self.before.values()):
            return ""
        return hashlib.sha256(" ".join([_digest(self.before), *self._laid]).encode()).hexdigest()

    @property
    def is_intact(self) -> bool:
        """Whether the agent has left skills and documents as they were laid."""
        try:
            return self._digests() == self._laid
        except OSError:
            return False

    def look(self) -> None:
        """Find what has changed since the skills were installed.

        Named pipes are removed then: no writer is left, so a test that read one would never end.
        """
        self.after = self._snapshot()
        self.changed = [
            name
            for name in sorted(self.before.keys() | self.after.keys())
            if self.before.get(name, _ABSENT)[:2] != self.after.get(name, _ABSENT)[:2]
        ]
        for name, kind in self._kinds():
            with contextlib.suppress(OSError):
                if stat.S_ISFIFO(kind):
                    self.tree.remove(name)

    def _kinds(self) -> Iterator[tuple[str, int]]:
        """Yield name and mode of each changed file that is still there."""
        return ((name, self.after[name].mode) for name in self.changed if name in self.after)

    @property
    def links(self) -> list[Path]:
        """Links that were added or changed."""
        return [self.root / name for name, mode in self._kinds() if stat.S_ISLNK(mode)]

    @property
    def files(self) -> dict[str, str]:
        """Changed files: ``added``, ``changed`` or ``removed``, by path."""
        found = {}
        for name in self.changed:
            old, new = _is_file(self.before.get(name)), _is_file(self.after.get(name))
            if (old or new) and not is_git(name):
                found[name] = "changed" if old and new else "removed" if old else "added"
        return found

    @property
    def diff(self) -> str:
        """The changes as a unified diff of bounded size; only the names of binary files."""
        whole = ""
        for name, kind in self.files.items():
            old = [] if kind == "added" else _lines(self.before[name])
            new = [] if kind == "removed" else _lines(self.after[name])
            shown = os.fsencode(name).decode("utf-8", "backslashreplace")
            shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)
            diff = f"Binary or large file {shown} differs\n"
            if old is not None and new is not None:
                here = "/dev/null" if kind == "added" else f"a/{shown}"
                there = "/dev/null" if kind == "removed" else f"b/{shown}"
                diff = "".join(difflib.unified_diff(old, new, here, there))
            if len(whole) + len(diff) > _MOST_DIFF:
                return f"{whole}[... the rest of the diff is omitted ...]\n"
            whole += diff
        return whole

    def close(self) -> None:
        """Remove skills and documents, and the empty folders that contained them."""
        for place in self.placed:
            with contextlib.suppress(OSError):
                self.tree.remove(place)
                self._folders.append(posixpath.dirname(place))
        for folder in self._folders:
            with contextlib.suppress(OSError):
                for parent in [PurePosixPath(folder), *PurePosixPath(folder).parents][:-1]:
                    self.tree.remove(parent.as_posix(), only_empty=True)
        self.tree.close()

    def _remove_copies(self, skill: str) -> None:
        for path, entry in self.tree.entries(content=False).items():
            folder, _, file = path.rpartition("/")
            if file != SKILL_FILE or is_git(path) or stat.S_ISDIR(entry.mode):
                continue
            with contextlib.suppress(FileNotFoundError):  # It was removed with a parent folder.
                if self._name(path, entry) == skill:
                    self.tree.remove(path)
                    if folder:
                        self.tree.remove(folder)

    def _name(self, path: str, entry: Entry) -> str:
        """Return a skill's name: from its file, or of its folder if the file is a link.

        Empty if it is not a skill.
        """
        folder = (self.root / path).parent.name
        if not stat.S_ISREG(entry.mode):
            return folder
        try:
            return Document.from_bytes(self.tree.read(path, MAX_SKILL_BYTES)).name or folder
        except SkillError:
            return ""

    def _lay(self, place: str, files: Mapping[str, bytes]) -> None:
        with self.tree.at(place, make=True) as (fd, name):
            os.mkdir(name, dir_fd=fd)
        self.placed.append(place)
        for name, data in files.items():
            mode = 0o755 if data.startswith(b"#!") else 0o644
            self.tree.write(f"{place}/{name}", data, stat.S_IFREG | mode)

    def _hide_from_git(self) -> None:
        """Exclude skills and documents from commits that an agent makes."""
        try:
            with self.tree.folder(".git"):
                pass
        except OSError:
            return
        lines = (f"/{path}{'' if path in self._documents else '/'}\n" for path in self.placed)
        self.tree.append(".git/info/exclude", "".join(lines))

    def _digests(self) -> list[str]:
        found = []
        for path in self.placed:
            if path in self._documents:
                data = self.tree.read(path, MAX_SKILL_BYTES + 1)
                found.append(f"{path} {hashlib.sha256(data).hexdigest()}")
            else:
                found.append(_digest(self.tree.entries(path)))
        return found

    def _snapshot(self) -> dict[str, Entry]:
        return self.tree.entries(left_out=self.placed, room=_ROOM)


def leaking(workspace: Path, hidden: Collection[Path]) -> Path | None:
    """Find a file or folder above the workspace that a harness would read by itself.

    Files in ``hidden`` folders do not count.
    """
    parents = list(workspace.parents)
    seen = parents[: next((n for n, p in enumerate(parents) if p in hidden), None)]
    return next((p / name for p in seen for name in _UNASKED if (p / name).exists()), None)


def _digest(entries: Mapping[str, Entry]) -> str:
    lines = (f"{name}\0{entry.mode}\0{entry.digest}" for name, entry in sorted(entries.items()))
    return hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest()


def _is_file(entry: Entry | None) -> bool:
    return entry is not None and not stat.S_ISDIR(entry.mode)


def _lines(entry: Entry) -> list[str] | None:
    """Return a file's lines, None if it is not a text."""
    data = entry.data
    if data is None or len(data) > _DIFFED_BYTES or b"\0" in data:
        return None
    try:
        lines = io.StringIO(data.decode(), newline="").readlines()
    except UnicodeDecodeError:
        return None
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file\n"
    return lines


class Run(BaseModel, frozen=True):
    """Record of one run of an agent, without its changes to files."""

    text: str
    """Last message of the agent."""
    turns: tuple[tuple[str, str], ...]
    """Role and content of each turn after the prompt."""
    tools: tuple[ToolRun, ...]
    problem: str
    """Reason for a missing answer that the agent is to blame for; empty if it answered."""
    skill_used: bool
    skill_read: bool
    exit_status: int
    seconds: float
    usage: Usage
    model: str = ""
    """Model that answered, as the provider tells."""
    commands: tuple[dict[str, Any], ...] = ()
    """Calls of commands that the test answered."""

    @classmethod
    def of_nothing(cls) -> Run:
        """Return the record of an agent that did nothing."""
        return cls(
            text="",
            turns=(),
            tools=(),
            problem="",
            skill_used=False,
            skill_read=False,
            exit_status=0,
            seconds=0.0,
            usage=Usage(),
        )


class _Change(BaseModel):
    mode: int
    text: str


class _Kept(BaseModel):
    mark: str
    run: Run
    changes: dict[str, _Change | None]


def pack(run: Run, laid: Workspace) -> str | None:
    """Write a run and its changes to files as a text.

    Returns None if the changes are too large, cannot be repeated, or could hide a secret. The
    workspace's path, which differs next time, is replaced by a mark. Names and contents of files
    are decoded as Latin-1, so that secrets in them are found and never cached.
    """
    told, changes = run.model_dump(), dict[str, Any]()
    root = os.fsencode(laid.root)
    is_committed = any(map(is_git, laid.changed))
    for name in laid.changed:
        entry = laid.after.get(name)
        data = b"" if entry is None else entry.data
        if data is None or _may_hide(name, data):
            return None
        if root in data and (b"\0" in data or is_committed):
            return None  # Replacing the path would break a binary file or a committed one.
        kept = entry and {"mode": entry.mode, "text": data.decode("latin-1")}
        changes[os.fsencode(name).decode("latin-1")] = kept
    plain = json.dumps([told, changes], ensure_ascii=False)
    marks = (f"{{skillopt-workspace{number or ''}}}" for number in itertools.count())
    mark = next(mark for mark in marks if mark not in plain)
    text = (
        f'{{"mark": {json.dumps(mark)}, "run": {_placeless(told, str(laid.root), mark)}, '
        f'"changes": {_placeless(changes, root.decode("latin-1"), mark)}}}'
    )
    return text if len(text) <= _ROOM and encodable(text) == text else None


def replay(text: str, laid: Workspace) -> Run:
    """Return a run written by ``pack``, and repeat its changes in an equal workspace.

    Raises:
        ValueError: it cannot be repeated here; the workspace is unchanged.
        OSError: it failed halfway.
    """
    kept = _Kept.model_validate_json(text)
    whole, root = str(laid.root), os.fsencode(laid.root).decode("latin-1")
    run = Run.model_validate_json(_placeless(kept.run.model_dump(), kept.mark, whole))
    changes: Changes = {}
    for name, change in kept.changes.items():
        path = os.fsdecode(name.replace(kept.mark, root).encode("latin-1"))
        data = "" if change is None else change.text.replace(kept.mark, root)
        content = data.encode("latin-1")
        changes[path] = None if change is None else Entry(change.mode, "", content)
    _check(changes, laid)
    _apply(changes, laid)
    laid.look()
    made = {name: laid.after.get(name) for name in changes}
    if laid.changed != sorted(changes) or any(
        new and old and (new.mode, new.data) != (old.mode, old.data)
        for new, old in zip(made.values(), changes.values(), strict=True)
    ):
        raise OSError(f"{laid.root}: repeating a cached run gave other files")
    return run


def _check(changes: Changes, laid: Workspace) -> None:
    """Raise ValueError unless the result is a valid tree of folders, files and links."""
    modes = {name: entry.mode for name, entry in laid.before.items()}
    modes |= dict.fromkeys(laid.placed, stat.S_IFREG)  # What is under test stays in its folders.
    for name, entry in changes.items():
        if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
            raise ValueError(f"{name!r} is not a path in a workspace")
        if any(f"{name}/".startswith(f"{place}/") for place in laid.placed):
            raise ValueError(f"{name!r} is inside the skill")
        if entry is None and name not in modes:
            raise ValueError(f"{name!r} should be removed but does not exist")
        if entry is not None and stat.S_IFMT(entry.mode) not in _KINDS:
            raise ValueError(f"{name!r} has the invalid mode {entry.mode}")
        modes[name] = 0 if entry is None else entry.mode
    for name, mode in modes.items():
        above = name.rpartition("/")[0]
        if mode and above and not stat.S_ISDIR(modes.get(above, 0)):
            raise ValueError(f"{name!r} is not in a folder")


def _apply(changes: Changes, laid: Workspace) -> None:
    """Apply the changes; all new content is first written to a temporary folder."""
    tree, aside = laid.tree, f".skillopt-{uuid.uuid4().hex}"
    new = [(name, entry) for name, entry in sorted(changes.items()) if entry is not None]
    files = [(name, entry) for name, entry in new if not stat.S_ISDIR(entry.mode)]
    folders = [(name, entry) for name, entry in new if stat.S_ISDIR(entry.mode)]
    places = {name: f"{aside}/{n}/{posixpath.basename(name)}" for n, (name, _) in enumerate(files)}
    try:
        tree.make_folder(aside, 0o700)
        for name, entry in files:
            tree.write(places[name], entry.data or b"", entry.mode)
    except OSError as error:
        tree.remove(aside)
        raise ValueError(str(error)) from None
    stay = {name for name, _ in folders if stat.S_ISDIR(laid.before.get(name, _ABSENT).mode)}
    for name in sorted(laid.before.keys() & changes.keys() - stay, reverse=True):
        tree.remove(name)
    for name, _ in folders:
        tree.make_folder(name, 0o700)
    for name, place in places.items():
        tree.move(place, name)
    for name, entry in reversed(folders):
        tree.make_folder(name, entry.mode)
    tree.remove(aside)


def _may_hide(name: str, data: bytes) -> bool:
    """Return whether a git object holds a secret, or cannot be read (e.g. a pack)."""
    if not is_git(name) or "/objects/" not in name or not data:
        return False
    try:
        whole = zlib.decompressobj().decompress(data, _ROOM).decode("latin-1")
    except zlib.error:
        return True
    return redact(whole) != whole


def _placeless(value: Any, old: str, new: str) -> str:
    """Write a value as JSON, with a text replaced in all its strings."""
    written, *texts = (json.dumps(part, ensure_ascii=False) for part in (value, old, new))
    return written.replace(texts[0][1:-1], texts[1][1:-1])
