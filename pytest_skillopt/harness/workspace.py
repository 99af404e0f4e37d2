"""The folder in which an agent works: the skill laid into it, and what the run changed."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import shutil
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.skill.document import Document, SkillError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

FOLDERS = tuple(
    f"{folder}/{name}"
    for folder in (
        [
            ".agents",
            ".claude",
            ".codex",
            ".copilot",
            ".cursor",
            ".gemini",
            ".github",
            ".opencode",
            ".pi",
            ".qwen",
        ]
    )
    for name in ("skills", "skill")
)
"""Where harnesses find the skills of a project."""
MEMORIES = ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "GEMINI.md", "QWEN.md", "COPILOT.md")
"""Files that a harness reads unasked, in parent folders too."""
_KEPT_BYTES = 20_000_000
_DIFFED_BYTES = 200_000
_MOST_DIFF = 100_000
_MOST_FILES = 50_000


class SkillTouched(Exception):
    """The agent has changed the skill under test."""


@dataclass(frozen=True, slots=True)
class File:
    """A file or a link, as it was."""

    mode: int
    digest: str
    data: bytes | None
    """Content, or the target of a link; None where it is too large to be kept."""
    link: bool = False


Snapshot = dict[str, File]
"""Every file of a workspace by its path, with ``/``."""


class Workspace:
    """A workspace with a skill in it. Other copies of the skill are taken out.

    Args:
        root: the folder; made where it is missing.
        skills: where the harness looks for skills, relative to the root.
        skill: folder of the version under test.
        others: folders of further skills, which compete for being used.
        ignored: files that are no work of the agent, relative to the root.

    Raises:
        SkillError: a folder of ``others`` is no skill.
        OSError: it cannot be written.
    """

    def __init__(
        self,
        root: Path,
        skills: str,
        skill: Path,
        *,
        others: Collection[Path] = (),
        ignored: Collection[str] = (),
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.name = skill_name(skill)
        _take_out(root, self.name)
        self._placed: list[str] = []
        for folder in (skill, *others):
            name = f"{skills}/{skill_name(folder)}"
            shutil.copytree(folder, root / name)
            self._placed.append(name)
        self.skill = root / self._placed[0]
        self._laid = digest_of(self.skill)
        self._ignored = frozenset(ignored)
        _hide_from_git(root, self._placed)
        self.before = self.snapshot()

    def snapshot(self) -> Snapshot:
        """Every file but git's own, the skills that were laid in and what is ignored."""
        found: Snapshot = {}
        room = _KEPT_BYTES
        for name, path in _files(self.root, self._placed):
            if name in self._ignored:
                continue
            with contextlib.suppress(FileNotFoundError):
                found[name] = _read(path, room)
                room -= len(found[name].data or b"")
            if len(found) > _MOST_FILES:
                raise OSError(f"{self.root}: more than {_MOST_FILES} files")
        return found

    def check_skill(self) -> None:
        """Raises:
        SkillTouched: the skill is no longer the version under test.
        """
        if digest_of(self.skill) != self._laid:
            raise SkillTouched

    def clear(self) -> None:
        """Take the skills out again, and the folders that were made for them."""
        for name in self._placed:
            shutil.rmtree(self.root / name, ignore_errors=True)
            for parent in list((self.root / name).relative_to(self.root).parents)[:-1]:
                with contextlib.suppress(OSError):
                    (self.root / parent).rmdir()


def skill_name(folder: Path) -> str:
    """The name in a skill's frontmatter; that of the folder where it has none.

    Raises:
        SkillError: no skill lies there.
    """
    file = folder / "SKILL.md"
    try:
        return Document.from_bytes(file.read_bytes()).name or folder.name
    except OSError as error:
        raise SkillError(f"{file}: cannot be read ({error.strerror})") from None


def leaking_memory(workspace: Path, hidden: Collection[Path]) -> Path | None:
    """A file or folder above the workspace that a harness would read unasked; None: there is none.

    Args:
        hidden: folders whose content the agent cannot see.
    """
    for parent in workspace.resolve().parents:
        if parent in hidden:
            return None
        for name in (*MEMORIES, *FOLDERS):
            if (parent / name).exists():
                return parent / name
    return None


def changes(before: Snapshot, after: Snapshot) -> dict[str, str]:
    """Path to ``added``, ``changed`` or ``removed``."""
    kinds = {}
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None:
            kinds[name] = "added"
        elif new is None:
            kinds[name] = "removed"
        elif (old.digest, old.mode) != (new.digest, new.mode):
            kinds[name] = "changed"
    return kinds


def unified_diff(before: Snapshot, after: Snapshot) -> str:
    """What changed as a unified diff, bounded; files that are no text are named alone."""
    parts: list[str] = []
    size = 0
    for name in changes(before, after):
        old, new = _text(before.get(name)), _text(after.get(name))
        if old is None or new is None:
            lines = [f"Binary or large file {name} differs\n"]
        else:
            pair = (f"a/{name}" if name in before else "/dev/null", f"b/{name}")
            there = pair[1] if name in after else "/dev/null"
            lines = list(difflib.unified_diff(_lines(old), _lines(new), pair[0], there))
        size += sum(map(len, lines))
        if size > _MOST_DIFF:
            return "".join([*parts, "[... the rest of the diff is left out ...]\n"])
        parts += lines
    return "".join(parts)


def fingerprint(snapshot: Snapshot) -> str:
    """SHA-256 of a workspace's content."""
    lines = (f"{name}\0{f.mode}\0{f.link}\0{f.digest}" for name, f in sorted(snapshot.items()))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def digest_of(folder: Path) -> str:
    """SHA-256 of all that lies in a folder."""
    return fingerprint({name: _read(path, 0) for name, path in _files(folder, ())})


def packed_changes(before: Snapshot, after: Snapshot) -> dict[str, Any] | None:
    """What a run did to its workspace, as JSON; None where it is too much to be kept."""
    packed: dict[str, Any] = {}
    size = 0
    for name, kind in changes(before, after).items():
        if kind == "removed":
            packed[name] = None
            continue
        file = after[name]
        if file.data is None:
            return None
        size += len(file.data)
        if size > _KEPT_BYTES:
            return None
        try:
            content = {"text": file.data.decode()}
        except UnicodeDecodeError:
            # Not base64: by chance it has the shape of a secret, which is never kept.
            content = {"zlib": zlib.compress(file.data).hex()}
        packed[name] = {**content, "mode": file.mode, "link": file.link}
    return packed


def replay(root: Path, packed: Mapping[str, Any]) -> None:
    """Do to a workspace what a run did.

    Raises:
        ValueError: a path that leaves the workspace, or content of another form.
        OSError: it cannot be written.
    """
    for name, kept in packed.items():
        target = root / name
        if not target.parent.resolve().is_relative_to(root.resolve()):
            raise ValueError(f"{name!r} leaves the workspace")
        target.unlink(missing_ok=True)
        if kept is None:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if "text" in kept:
            data = kept["text"].encode()
        else:
            data = zlib.decompress(bytes.fromhex(kept["zlib"]))
        if kept["link"]:
            target.symlink_to(os.fsdecode(data))
        else:
            target.write_bytes(data)
            target.chmod(kept["mode"])


def _files(root: Path, left_out: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Files and links below a folder with their relative paths; no link is followed."""
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        linked = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(
            name
            for name in folders
            if name not in linked
            and name != ".git"
            and (here / name).relative_to(root).as_posix() not in left_out
        )
        for name in sorted([*names, *linked]):
            path = here / name
            yield path.relative_to(root).as_posix(), path


def _read(path: Path, room: int) -> File:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        data = os.fsencode(os.readlink(path))
        return File(0, hashlib.sha256(data).hexdigest(), data, link=True)
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        return File(mode, f"special {status.st_mode}", None)
    try:
        if status.st_size <= room:
            data = path.read_bytes()
            return File(mode, hashlib.sha256(data).hexdigest(), data)
        with path.open("rb") as file:
            return File(mode, hashlib.file_digest(file, "sha256").hexdigest(), None)
    except PermissionError:
        return File(mode, f"unreadable {status.st_size}", None)


def _take_out(root: Path, name: str) -> None:
    """Remove every other copy of the skill: a copied project holds the one on disk."""
    for folder in FOLDERS:
        shutil.rmtree(root / folder / name, ignore_errors=True)
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f != ".git"]
        if "SKILL.md" in names:
            with contextlib.suppress(SkillError):
                if skill_name(Path(folder)) == name:
                    _remove(Path(folder), root)
                    folders.clear()


def _remove(folder: Path, root: Path) -> None:
    if folder == root:
        (folder / "SKILL.md").unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _hide_from_git(root: Path, placed: Collection[str]) -> None:
    """An agent that adds all files to its commit shall not add the skill."""
    info = root / ".git" / "info"
    if info.parent.is_dir():
        info.mkdir(exist_ok=True)
        with (info / "exclude").open("a", encoding="utf-8") as file:
            file.writelines(f"/{name}/\n" for name in placed)


def _text(file: File | None) -> str | None:
    if file is None:
        return ""
    if file.data is None or len(file.data) > _DIFFED_BYTES or b"\0" in file.data:
        return None
    try:
        return file.data.decode()
    except UnicodeDecodeError:
        return None


def _lines(text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file\n"
    return lines
