"""The folder in which an agent works: the skill laid into it, and what the run changed."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import shutil
import stat
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_skillopt.skill.document import Document, SkillError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_AGENTS = "agents claude codex copilot cursor gemini github opencode pi qwen"
_UNASKED = (
    *(f".{agent}/{name}" for agent in _AGENTS.split() for name in ("skills", "skill")),
    *(f"{name}.md" for name in ("CLAUDE", "CLAUDE.local", "AGENTS", "GEMINI", "QWEN", "COPILOT")),
)
"""Files and folders that a harness reads unasked, in parent folders too."""
_KEPT_BYTES, _DIFFED_BYTES, _MOST_DIFF, _MOST_FILES = 20_000_000, 200_000, 100_000, 50_000


class File(NamedTuple):
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

    Raises:
        SkillError: a folder of ``others`` is no skill.
        OSError: it cannot be written.
    """

    def __init__(self, root: Path, skills: str, skill: Path, others: Collection[Path]) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        name = skill_name(skill)
        for found in [file.parent for file in root.rglob("SKILL.md") if ".git" not in file.parts]:
            with contextlib.suppress(SkillError):
                if found.is_dir() and skill_name(found) == name:
                    (found / "SKILL.md").unlink()
                    if found != root:
                        shutil.rmtree(found)
        self._placed = {f"{skills}/{skill_name(folder)}": folder for folder in (skill, *others)}
        for place, folder in self._placed.items():
            shutil.copytree(folder, root / place)
        self.skill = root / skills / name
        self._laid = digest_of(self.skill)
        if (root / ".git").is_dir():  # An agent that commits all files shall not commit the skill.
            (root / ".git" / "info").mkdir(exist_ok=True)
            with (root / ".git" / "info" / "exclude").open("a", encoding="utf-8") as file:
                file.writelines(f"/{place}/\n" for place in self._placed)
        self.before = self.snapshot()

    def snapshot(self) -> Snapshot:
        """Every file but git's own and the skills that were laid in."""
        return _snapshot(self.root, self._placed, _KEPT_BYTES)

    def skill_is_untouched(self) -> bool:
        """Whether the skill is still the version under test."""
        return digest_of(self.skill) == self._laid

    def clear(self) -> None:
        """Take the skills out again, and the folders that were made for them."""
        for place in self._placed:
            shutil.rmtree(self.root / place, ignore_errors=True)
            for parent in list(Path(place).parents)[:-1]:
                with contextlib.suppress(OSError):
                    (self.root / parent).rmdir()


def skill_name(folder: Path) -> str:
    """The name in a skill's frontmatter; that of the folder where it has none.

    Raises:
        SkillError: no skill lies there.
    """
    try:
        return Document.from_bytes((folder / "SKILL.md").read_bytes()).name or folder.name
    except OSError as error:
        raise SkillError(f"{folder / 'SKILL.md'}: cannot be read ({error.strerror})") from None


def leaking(workspace: Path, hidden: Collection[Path]) -> Path | None:
    """A file or folder above the workspace that a harness would read unasked; None: there is none.

    Args:
        hidden: folders whose content the agent cannot see.
    """
    for parent in workspace.resolve().parents:
        if parent in hidden:
            return None
        for name in _UNASKED:
            if (parent / name).exists():
                return parent / name
    return None


def changes(before: Snapshot, after: Snapshot) -> dict[str, str]:
    """Path to ``added``, ``changed`` or ``removed``."""
    kinds = {}
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            kinds[name] = "added" if old is None else "removed"
        elif (old.digest, old.mode) != (new.digest, new.mode):
            kinds[name] = "changed"
    return kinds


def unified_diff(before: Snapshot, after: Snapshot) -> str:
    """What changed as a unified diff, bounded; files that are no text are named alone."""
    parts: list[str] = []
    for name, kind in changes(before, after).items():
        old, new = _lines(before.get(name)), _lines(after.get(name))
        lines = [f"Binary or large file {name} differs\n"]
        if old is not None and new is not None:
            here = "/dev/null" if kind == "added" else f"a/{name}"
            there = "/dev/null" if kind == "removed" else f"b/{name}"
            lines = list(difflib.unified_diff(old, new, here, there))
        if sum(map(len, parts)) + sum(map(len, lines)) > _MOST_DIFF:
            return "".join([*parts, "[... the rest of the diff is left out ...]\n"])
        parts += lines
    return "".join(parts)


def fingerprint(snapshot: Snapshot) -> str:
    """SHA-256 of a workspace's content."""
    lines = (f"{name}\0{f.mode}\0{f.link}\0{f.digest}" for name, f in sorted(snapshot.items()))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def digest_of(folder: Path) -> str:
    """SHA-256 of all that lies in a folder."""
    return fingerprint(_snapshot(folder, (), 0))


def packed_changes(before: Snapshot, after: Snapshot) -> dict[str, Any] | None:
    """What a run did to its workspace, as JSON; None where it is too much to be kept."""
    packed: dict[str, Any] = {}
    size = 0
    for name in changes(before, after):
        packed[name] = None
        if (file := after.get(name)) is None:
            continue
        size += len(file.data or b"")
        if file.data is None or size > _KEPT_BYTES:
            return None
        packed[name] = {"mode": file.mode, "link": file.link}
        try:
            packed[name]["text"] = file.data.decode()
        except UnicodeDecodeError:
            # Not base64: by chance it has the shape of a secret, which is never kept.
            packed[name]["zlib"] = zlib.compress(file.data).hex()
    return packed


def replay(root: Path, packed: Mapping[str, Any]) -> None:
    """Do to a workspace what a run did.

    Raises:
        ValueError: a path that leaves the workspace.
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
        text = kept.get("text")
        data = zlib.decompress(bytes.fromhex(kept["zlib"])) if text is None else text.encode()
        if kept["link"]:
            target.symlink_to(os.fsdecode(data))
        else:
            target.write_bytes(data)
            target.chmod(kept["mode"])


def _snapshot(root: Path, left_out: Collection[str], room: int) -> Snapshot:
    """Every file below a folder, with up to ``room`` bytes of content; no link is followed."""
    found: Snapshot = {}
    for folder, folders, names in os.walk(root):
        here = Path(folder).relative_to(root)
        linked = [name for name in folders if (root / here / name).is_symlink()]
        skipped = {".git", *linked}
        folders[:] = [
            f for f in folders if f not in skipped and (here / f).as_posix() not in left_out
        ]
        for name in (*names, *linked):
            with contextlib.suppress(FileNotFoundError):
                file = found[(here / name).as_posix()] = _read(root / here / name, room)
                room -= len(file.data or b"")
        if len(found) > _MOST_FILES:
            raise OSError(f"{root}: more than {_MOST_FILES} files")
    return found


def _read(path: Path, room: int) -> File:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        data = os.fsencode(os.readlink(path))
        return File(0, hashlib.sha256(data).hexdigest(), data, link=True)
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode) or not os.access(path, os.R_OK):
        return File(mode, f"unreadable {status.st_mode} {status.st_size}", None)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return File(mode, digest, path.read_bytes() if status.st_size <= room else None)


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
