"""The versions of the skills under test, as directories on this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections import OrderedDict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pytest_skillopt.skill.files import materialise

if TYPE_CHECKING:
    from collections.abc import Mapping

_DIRECTORIES_KEPT = 16


class SkillVersions:
    """Content arrives once a process; a directory is made when a rollout first needs it.

    Nothing is read from the project, which may lie on another machine. Thread-safe.
    """

    def __init__(self, *, kept: int = 0) -> None:
        """``kept``: directories that may be in use at once, over those kept anyway."""
        self._kept = _DIRECTORIES_KEPT + kept
        self._files: dict[str, Mapping[str, bytes]] = {}
        self._contents: dict[tuple[str, str], bytes] = {}
        self._directories: OrderedDict[tuple[str, str], Path] = OrderedDict()
        self._root: Path | None = None
        self._lock = threading.Lock()

    def add_skill(self, skill: str, files: Mapping[str, bytes]) -> None:
        """Keep the files beside a skill's document, by path relative to it, with ``/``."""
        self._files[skill] = files

    def receive(self, kind: str, *told: Any) -> None:
        """Take a message ``skill`` or ``version`` of the wire."""
        if kind == "skill":
            skill, files = told
            self.add_skill(skill, {os.fsdecode(name): data for name, data in files.items()})
        else:
            self.add_version(*told)

    def add_version(self, skill: str, version: str, content: bytes) -> None:
        self._contents[skill, version] = content

    def content(self, skill: str, version: str) -> bytes:
        """Raises:
        KeyError: the version was never added.
        """
        return self._contents[skill, version]

    def directory(self, skill: str, version: str) -> Path:
        """The directory that holds the skill with this version of its document."""
        key = skill, version
        with self._lock:
            if key not in self._directories:
                self._directories[key] = self._materialise(skill, version)
                self._drop_oldest()
            self._directories.move_to_end(key)
            return self._directories[key]

    def close(self) -> None:
        """Remove all directories."""
        with self._lock:
            self._directories.clear()
            if self._root is not None:
                shutil.rmtree(self._root, ignore_errors=True)
                self._root = None

    def _materialise(self, skill: str, version: str) -> Path:
        if self._root is None:
            # Not tmp_path_factory: xdist gives remote workers a base that is not on their machine.
            self._root = Path(tempfile.mkdtemp(prefix="skillopt-"))
        path = PurePosixPath(skill)
        # An agent may check that the directory is called like the skill.
        directory = Path(tempfile.mkdtemp(dir=self._root)) / (path.parent.name or "skill")
        content = self._contents[skill, version]
        materialise(directory, self._files.get(skill, {}), path.name, content)
        return directory

    def _drop_oldest(self) -> None:
        while len(self._directories) > self._kept:
            _, directory = self._directories.popitem(last=False)
            shutil.rmtree(directory.parent, ignore_errors=True)
