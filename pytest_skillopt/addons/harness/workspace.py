"""The folder in which an agent works: the skill laid into it, and what the run changed."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_skillopt.skill.document import Document, SkillError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

_AGENTS = "agents claude codex copilot cursor gemini github opencode pi qwen"
_UNASKED = (
    *(f".{agent}/{name}" for agent in _AGENTS.split() for name in ("skills", "skill")),
    *(f"{name}.md" for name in ("CLAUDE", "CLAUDE.local", "AGENTS", "GEMINI", "QWEN", "COPILOT")),
)
"""Files and folders that a harness reads unasked, in parent folders too."""
_KEPT_BYTES, _DIFFED_BYTES, _MOST_DIFF, _MOST_FILES = 20_000_000, 200_000, 100_000, 50_000


class File(NamedTuple):
    """A file or a link, as it was: type and permissions, SHA-256, content or the target of a link;
    None where that is too large to be kept."""

    mode: int
    digest: str
    data: bytes | None


class Workspace:
    """A workspace with a skill in it; other copies of the skill are taken out. ``skills`` is where
    the harness looks for them, ``others`` are folders of skills that compete. SkillError where one
    of them is no skill, OSError where the workspace cannot be written."""

    def __init__(
        self, root: Path, skills: str, skill: Path, name: str, others: Collection[Path]
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        name = name or skill.name
        for found in [file.parent for file in root.rglob("SKILL.md") if ".git" not in file.parts]:
            with contextlib.suppress(SkillError):
                if found.is_dir() and _name(found) == name:
                    (found / "SKILL.md").unlink()
                    if found != root:
                        shutil.rmtree(found)
        self.root, self.skill = root, root / skills / name
        placed = {name: skill, **{_name(folder): folder for folder in others}}
        self._placed = {f"{skills}/{name}": folder for name, folder in placed.items()}
        for place, folder in self._placed.items():
            shutil.copytree(folder, root / place)
        self._laid = digest_of(self.skill)
        if (root / ".git").is_dir():  # An agent that commits all files shall not commit the skill.
            (root / ".git" / "info").mkdir(exist_ok=True)
            with (root / ".git" / "info" / "exclude").open("a", encoding="utf-8") as file:
                file.writelines(f"/{place}/\n" for place in self._placed)
        self.before = self.after = _snapshot(root, self._placed, _KEPT_BYTES)
        self.digest = _digest(self.before)

    @property
    def is_intact(self) -> bool:
        """Whether the skill is still the version under test."""
        return digest_of(self.skill) == self._laid

    def look(self) -> dict[str, str]:
        """What has changed by now: path to ``added``, ``changed`` or ``removed``."""
        self.after, found = _snapshot(self.root, self._placed, _KEPT_BYTES), {}
        for name in sorted(self.before.keys() | self.after.keys()):
            old, new = self.before.get(name), self.after.get(name)
            if old is None or new is None:
                found[name] = "added" if old is None else "removed"
            elif old[:2] != new[:2]:
                found[name] = "changed"
        return found

    def diff(self, files: Mapping[str, str]) -> str:
        """Changes that ``look`` has found as a unified diff, bounded; files that are no text are
        named alone."""
        whole = ""
        for name, kind in files.items():
            old, new = _lines(self.before.get(name)), _lines(self.after.get(name))
            diff = f"Binary or large file {name} differs\n"
            if old is not None and new is not None:
                here = "/dev/null" if kind == "added" else f"a/{name}"
                there = "/dev/null" if kind == "removed" else f"b/{name}"
                diff = "".join(difflib.unified_diff(old, new, here, there))
            if len(whole) + len(diff) > _MOST_DIFF:
                return f"{whole}[... the rest of the diff is left out ...]\n"
            whole += diff
        return whole

    def packed(self, files: Iterable[str]) -> dict[str, Any] | None:
        """The same as JSON, for ``replay``; None where it is too much to be kept."""
        packed: dict[str, Any] = dict.fromkeys(files)
        room = _KEPT_BYTES
        for name, file in ((name, self.after[name]) for name in packed if name in self.after):
            room -= len(file.data or b"")
            if file.data is None or room < 0:
                return None
            # Bytes as characters: a secret among them can be seen, and is never kept.
            packed[name] = {"mode": file.mode, "text": file.data.decode("latin-1")}
        return packed

    def replay(self, packed: Mapping[str, Any]) -> None:
        """Do what another run did; ValueError for a path that leaves the workspace."""
        for name, kept in packed.items():
            target = self.root / name
            if not target.parent.resolve().is_relative_to(self.root.resolve()):
                raise ValueError(f"{name!r} leaves the workspace")
            target.unlink(missing_ok=True)
            if kept is None:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            data = kept["text"].encode("latin-1")
            if stat.S_ISLNK(kept["mode"]):
                target.symlink_to(os.fsdecode(data))
            else:
                target.write_bytes(data)
                target.chmod(stat.S_IMODE(kept["mode"]))

    def close(self) -> None:
        """Take the skills out again, and the folders that were made for them."""
        for place in self._placed:
            shutil.rmtree(self.root / place, ignore_errors=True)
            for parent in list(Path(place).parents)[:-1]:
                with contextlib.suppress(OSError):
                    (self.root / parent).rmdir()


def leaking(workspace: Path, hidden: Collection[Path]) -> Path | None:
    """A file or folder above the workspace that a harness would read unasked, if there is one; what
    lies in ``hidden`` folders is not seen."""
    parents = list(workspace.parents)
    seen = parents[: next((n for n, p in enumerate(parents) if p in hidden), None)]
    return next((p / name for p in seen for name in _UNASKED if (p / name).exists()), None)


def digest_of(folder: Path) -> str:
    """SHA-256 of all that lies in a folder."""
    return _digest(_snapshot(folder, (), 0))


def _digest(files: Mapping[str, File]) -> str:
    lines = (f"{name}\0{file.mode}\0{file.digest}" for name, file in sorted(files.items()))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _name(skill: Path) -> str:
    """The name in a skill's frontmatter; that of the folder where it has none."""
    try:
        return Document.from_bytes((skill / "SKILL.md").read_bytes()).name or skill.name
    except OSError as error:
        raise SkillError(f"{skill / 'SKILL.md'}: cannot be read ({error.strerror})") from None


def _snapshot(root: Path, left_out: Collection[str], room: int) -> dict[str, File]:
    """Every file below a folder but git's own, with up to ``room`` bytes of content in all; no link
    is followed."""
    found: dict[str, File] = {}
    for folder, folders, names in os.walk(root):
        here = os.path.relpath(folder, root)
        linked = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        paths = {name: os.path.normpath(f"{here}/{name}") for name in (*names, *folders)}
        skipped = (".git", *linked)
        folders[:] = [f for f in folders if f not in skipped and paths[f] not in left_out]
        for name in (*names, *linked):
            with contextlib.suppress(FileNotFoundError):
                file = found[paths[name]] = _read(os.path.join(folder, name), room)
                room -= len(file.data or b"")
        if len(found) > _MOST_FILES:
            raise OSError(f"{root}: more than {_MOST_FILES} files")
    return found


def _read(path: str, room: int) -> File:
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        data = os.fsencode(os.readlink(path))
        return File(status.st_mode, hashlib.sha256(data).hexdigest(), data)
    if not stat.S_ISREG(status.st_mode) or not os.access(path, os.R_OK):
        return File(status.st_mode, f"unreadable {status.st_size}", None)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        return File(status.st_mode, digest, file.read() if status.st_size <= room else None)


def _lines(file: File | None) -> list[str] | None:
    """The lines of a text; None of anything else."""
    data = b"" if file is None else file.data
    if data is None or len(data) > _DIFFED_BYTES or b"\0" in data:
        return None
    try:
        lines = data.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        return None
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file\n"
    return lines
