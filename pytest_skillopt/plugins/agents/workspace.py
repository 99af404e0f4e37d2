"""Prepare the folder in which an agent works, and find what a run changed."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import io
import os
import posixpath
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from pytest_skillopt.plugins.agents.tree import Entry, Tree, is_git
from pytest_skillopt.skill.find import AGENT_FOLDERS
from pytest_skillopt.skill.read import MAX_SKILL_BYTES
from pytest_skillopt.skill.text import SkillError, Text
from pytest_skillopt.skill.version import SKILL_FILE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_UNASKED = (
    *(f"{place}/{name}" for place in (*AGENT_FOLDERS, ".copilot") for name in ("skills", "skill")),
    *(f"{name}.md" for name in ("CLAUDE", "CLAUDE.local", "AGENTS", "GEMINI", "QWEN", "COPILOT")),
)
"""Files and folders that harnesses read by themselves, also in parent folders."""
ROOM = 20_000_000
"""Maximum bytes of changed content, and characters of all, with which a run is cached."""
_DIFFED_BYTES, _MOST_DIFF = 200_000, 100_000
ABSENT = Entry(0)


class UnderTest(NamedTuple):
    """Skill or documents under test, with what belongs beside them."""

    name: str
    """Name of the skill under test, empty if there is none."""
    skills: Mapping[str, Mapping[str, bytes]]
    """Files of each skill by path, by the skill's name."""
    documents: Mapping[str, bytes]
    """Contents of files to write, by path; an empty one is not written."""
    replaced: Collection[str]
    """Paths of files that must not be there beside ``documents``."""


class Workspace:
    """Workspace with what is under test in it; other copies of that are removed.

    Args:
        root: the folder; no link in it is followed.
        skills: folder in it where the harness looks for skills.
        under_test: what is installed in it.
        copied: folder to copy into the workspace first.

    Raises:
        OSError: it cannot be read or written, or has a link instead of a folder.
    """

    def __init__(
        self,
        root: Path,
        skills: str,
        under_test: UnderTest,
        copied: Path | None = None,
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.tree = Tree(root)
        self.placed: list[str] = []
        self._documents = {path: data for path, data in under_test.documents.items() if data}
        self._folders = list[str]()
        self.changed: list[str] = []
        """Changed paths found by ``look``, including folders and git's own files."""
        try:
            if copied is not None:
                self.tree.copy(copied)
            for path in under_test.replaced:
                with contextlib.suppress(FileNotFoundError):
                    self.tree.remove(path)
            if under_test.name:
                self._remove_copies(under_test.name)
            for name, files in under_test.skills.items():
                self._install(f"{skills}/{name}", files)
            for path in under_test.documents:
                with self.tree.folder(posixpath.dirname(path), make=True):
                    self._folders.append(posixpath.dirname(path))
            for path, data in self._documents.items():
                self.tree.write(path, data, stat.S_IFREG | 0o644)
                self.placed.append(path)
            self._hide_from_git()
            self._digests_at_start = self._digests()
            self.before = self.after = self._snapshot()
        except BaseException:
            self.close()
            raise

    @property
    def digest(self) -> str:
        """SHA-256 of the workspace and what is installed in it; empty if not all can be read."""
        if not all(entry.is_known for entry in self.before.values()):
            return ""
        return hashlib.sha256(
            " ".join([_digest(self.before), *self._digests_at_start]).encode()
        ).hexdigest()

    @property
    def is_intact(self) -> bool:
        """Whether the agent has left skills and documents as they were installed."""
        try:
            return self._digests() == self._digests_at_start
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
            if self.before.get(name, ABSENT)[:2] != self.after.get(name, ABSENT)[:2]
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
            old = _is_file(self.before.get(name))
            new = _is_file(self.after.get(name))
            if is_git(name) or not (old or new):
                continue
            if not old:
                found[name] = "added"
            else:
                found[name] = "changed" if new else "removed"
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
            return Text.from_bytes(self.tree.read(path, MAX_SKILL_BYTES)).name or folder
        except SkillError:
            return ""

    def _install(self, place: str, files: Mapping[str, bytes]) -> None:
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
        return self.tree.entries(left_out=self.placed, room=ROOM)


def find_leak(workspace: Path, hidden: Collection[Path]) -> Path | None:
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
