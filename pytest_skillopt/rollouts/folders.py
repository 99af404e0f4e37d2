"""Temporary folders, removed by the next process after a kill, and versions of skills in them."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import threading
import time
import uuid
from collections import OrderedDict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from filelock import FileLock

from pytest_skillopt.skill.version import Version, is_outside
from pytest_skillopt.skill.write import materialise

if TYPE_CHECKING:
    from collections.abc import Mapping

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a folder is opened."""
_NEW_SECONDS = 10.0
"""Age in seconds below which a folder may not have been locked yet by its process."""
_IN_USE = "in-use"
"""File in a folder, locked until its process ends."""
_SWEPT: set[str] = set()
"""Prefixes whose old folders this process has already removed."""


class TemporaryFolder:
    """A folder of this process, with a file locked until the process ends, however it ends.

    Folders of ended processes whose names begin with ``prefix`` are removed first. ``parent`` is by
    default the system's folder of temporary files. As a context it is an empty folder, removed at
    the end.
    """

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        place = parent or Path(tempfile.gettempdir())
        beside = str(place / prefix)
        left = () if beside in _SWEPT else place.glob(f"{prefix}*")
        _SWEPT.add(beside)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place)).resolve()
        self._held = _lock(self.path)
        for folder in left:
            with contextlib.suppress(OSError):
                about = folder.lstat()
                mine = about.st_uid == self.path.stat().st_uid and stat.S_ISDIR(about.st_mode)
                if mine and time.time() - about.st_mtime > _NEW_SECONDS:
                    _remove_locked(folder, _lock(folder))

    def __enter__(self) -> Path:
        inside = self.path / "content"
        inside.mkdir()
        return inside

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        _remove_locked(self.path, self._held)


def remove_folder(folder: Path) -> None:
    """Remove a folder with untrusted content: follow no link, accept any depth, ignore errors."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, _FOLDER)
        try:
            empty_folder(fd)
        finally:
            os.close(fd)
        folder.rmdir()


def empty_folder(fd: int) -> None:
    """Remove everything in an open folder.

    Nested folders are moved up first, so that at most two are open at once.

    Raises:
        OSError: something could not be removed; the rest was.
    """
    os.fchmod(fd, 0o700)
    failure: OSError | None = None
    stuck: set[str] = set()
    while left := [name for name in os.listdir(fd) if name not in stuck]:
        for name in left:
            try:
                _remove_entry(fd, name)
            except OSError as error:
                failure = error
                stuck.add(name)
    if failure is not None:
        raise failure


def _remove_entry(fd: int, name: str) -> None:
    if not stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode):
        os.unlink(name, dir_fd=fd)
        return
    below = os.open(name, _FOLDER, dir_fd=fd)
    try:
        os.fchmod(below, 0o700)
        for inner in os.listdir(below):
            if stat.S_ISDIR(os.lstat(inner, dir_fd=below).st_mode):
                moved = os.open(inner, _FOLDER, dir_fd=below)
                try:  # a read-only folder cannot be moved
                    os.fchmod(moved, 0o700)
                finally:
                    os.close(moved)
                os.rename(inner, f"removed-{uuid.uuid4().hex}", src_dir_fd=below, dst_dir_fd=fd)
            else:
                os.unlink(inner, dir_fd=below)
    finally:
        os.close(below)
    os.rmdir(name, dir_fd=fd)


def _lock(folder: Path) -> FileLock:
    """Lock a folder until this process ends, however it ends.

    Raises:
        OSError: another process has locked it.
    """
    held = FileLock(folder / _IN_USE, timeout=0, thread_local=False)
    held.acquire()
    return held


def _remove_locked(folder: Path, held: FileLock) -> None:
    remove_folder(folder)
    held.release()


_DIRECTORIES_KEPT = 16


class SkillVersions:
    """The versions of skills in this process. Thread-safe.

    Content arrives once per process; a directory is made when a rollout first needs it. Nothing is
    read from the project, which may be on another machine.

    ``kept`` directories are in use at once, kept in addition to the usual ones.
    """

    def __init__(self, *, kept: int = 0) -> None:
        self._kept = _DIRECTORIES_KEPT + kept
        self._files: dict[str, Mapping[str, bytes]] = {}
        self._contents: dict[tuple[str, str], bytes] = {}
        self._directories: OrderedDict[tuple[str, str], Path] = OrderedDict()
        self._root: TemporaryFolder | None = None
        self._lock = threading.Lock()

    def add_skill(self, skill: str, files: Mapping[str, bytes]) -> None:
        """Store the files beside a skill's document, by path relative to it, with ``/``."""
        self._files[skill] = files

    def files(self, skill: str) -> Mapping[str, bytes]:
        return self._files.get(skill, {})

    def add_version(self, skill: str, version: str, content: bytes) -> None:
        self._contents[skill, version] = content

    def content(self, skill: str, version: str) -> bytes:
        """Return the bytes of a version; raise KeyError if it was never added."""
        return self._contents[skill, version]

    def directory(self, skill: str, version: str) -> Path:
        """Return the directory with the skill and this version of its document."""
        key = skill, version
        with self._lock:
            if key not in self._directories:
                self._directories[key] = self._materialise(skill, version)
                while len(self._directories) > self._kept:
                    _, oldest = self._directories.popitem(last=False)
                    remove_folder(oldest.parent)
            self._directories.move_to_end(key)
            return self._directories[key]

    def close(self) -> None:
        with self._lock:
            self._directories.clear()
            if self._root is not None:
                self._root.remove()
                self._root = None

    def _materialise(self, skill: str, version: str) -> Path:
        if self._root is None:
            # tmp_path_factory does not work: xdist gives remote workers a base on another machine.
            self._root = TemporaryFolder("skillopt-skills-")
        path = PurePosixPath(skill)
        # An agent may check that the directory has the skill's name.
        directory = Path(tempfile.mkdtemp(dir=self._root.path)) / (path.parent.name or "skill")
        texts = Version.unpack(self._contents[skill, version])
        inside = {n: text.data for n, text in texts.files.items() if not is_outside(n)}
        main = {path.name: texts.main.data}
        materialise(directory, {**self.files(skill), **inside, **main})
        return directory
