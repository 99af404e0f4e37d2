"""Skill files on disk: found, read with checks, written atomically, sent to workers."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pytest_skillopt.skill.document import SKILL_FILE, Document, SkillError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


MAX_SKILL_BYTES = 1_000_000
"""Largest skill document that is read, in bytes."""
MAX_FILES = 2_000
MAX_TOTAL_BYTES = 20_000_000
"""Bounds of a skill directory that is sent to workers."""
RESOURCES = ("scripts", "references", "assets")
"""Folders of a skill (Agent Skills specification)."""

_SKIPPED = frozenset(
    {"node_modules", "__pycache__", "build", "dist", "target", "site-packages", "venv", "env"}
)


AGENT_FOLDERS = (".claude", ".agents", ".codex", ".cursor", ".gemini", ".github")
"""Hidden folders in which agents look for the skills of a project."""


class NoSkill(SkillError):
    """The project has no SKILL.md yet."""


class SkillChanged(SkillError):
    """The file is no longer what the run started from; it was not written."""


def find_skill(root: Path) -> Path:
    """The one SKILL.md under ``root``; where there is none, the one in its ``AGENT_FOLDERS``.

    Other hidden folders, virtual environments, ``node_modules`` and build output are not searched.

    Raises:
        NoSkill: there is none.
        SkillError: there are several; names them. Both name the settings that choose one.
    """
    found = _skills_in([root]) or _skills_in([root / name for name in AGENT_FOLDERS])
    if len(found) == 1:
        return found[0]
    way_out = "set skillopt_skill, or skill= on the marker, or put the tests beside their skill"
    if not found:
        raise NoSkill(
            f"no {SKILL_FILE} under {root} (hidden folders but {', '.join(AGENT_FOLDERS)} are not "
            f"searched); {way_out}, or start one with --skillopt-train --skillopt-init"
        )
    shown = ", ".join(path.relative_to(root).as_posix() for path in found[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    raise SkillError(f"{len(found)} skills under {root}: {shown}{more}; {way_out}")


def skill_paths(root: Path) -> list[Path]:
    """Every SKILL.md under ``root`` and in its ``AGENT_FOLDERS``."""
    return _skills_in([root, *(root / name for name in AGENT_FOLDERS)])


def _skills_in(folders: Sequence[Path]) -> list[Path]:
    walked = (found for start in folders for found in _walk(start))
    return sorted(Path(folder) / SKILL_FILE for folder, names in walked if SKILL_FILE in names)


def read_skill(path: Path, root: Path) -> Document:
    """Read a skill file of the project.

    Args:
        path: absolute, or relative to ``root``.
        root: the project's root directory; the file must lie in it, links resolved.

    Raises:
        SkillError: missing, no regular file, outside of the project, unreadable, larger than
            ``MAX_SKILL_BYTES``, or no document (see ``Document.from_bytes``).
    """
    path = root / path
    _check_place(path, root)
    try:
        size = path.stat().st_size
        if size > MAX_SKILL_BYTES:
            raise SkillError(f"{path}: {size} bytes, at most {MAX_SKILL_BYTES} can be trained")
        data = path.read_bytes()
    except OSError as error:
        raise SkillError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        return Document.from_bytes(data)
    except SkillError as error:
        raise SkillError(f"{path}: {error}") from None


def _check_place(path: Path, root: Path) -> None:
    try:
        target = path.resolve(strict=True)
    except FileNotFoundError:
        if path.is_symlink():
            raise SkillError(f"{path}: a link to nothing") from None
        raise SkillError(
            f"{path}: no such file; set skillopt_skill, or start one with --skillopt-init"
        ) from None
    except (OSError, RuntimeError) as error:
        raise SkillError(f"{path}: cannot be resolved ({error})") from None
    if not target.is_relative_to(root.resolve()):
        raise SkillError(f"{path}: lies outside of the project ({target}); copy it into {root}")
    if target.is_dir():
        raise SkillError(f"{path}: is a directory; name the file in it, e.g. {path / SKILL_FILE}")
    if not target.is_file():
        raise SkillError(f"{path}: is not a regular file")


def write_skill(path: Path, new: bytes, expected: bytes) -> None:
    """Replace the file's content at once, or not at all.

    The new content is written beside the file, flushed to disk and moved into place; the file's
    mode is kept, a link is followed.

    Raises:
        SkillChanged: the file no longer holds ``expected`` (a missing file holds nothing).
        SkillError: the folder cannot be written.
    """
    target = path.resolve()
    _check_unchanged(path, target, expected)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise SkillError(f"{target.parent}: cannot be written ({error.strerror})") from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(new)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        _check_unchanged(path, target, expected)
        temporary.replace(target)
    except OSError as error:
        raise SkillError(f"{target}: cannot be written ({error.strerror})") from None
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


def _check_unchanged(path: Path, target: Path, expected: bytes) -> None:
    try:
        current = target.read_bytes()
    except OSError as error:
        raise SkillChanged(
            f"{path}: not written, it can no longer be read ({error.strerror})"
        ) from None
    if current != expected:
        raise SkillChanged(f"{path}: not written, the file was changed during the run")


def _sync_folder(folder: Path) -> None:
    """Make the move itself durable, where the system lets a folder be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def skill_files(path: Path, root: Path) -> dict[str, bytes]:
    """The folder of a skill as relative path -> content, the skill file itself included.

    Hidden files, caches and virtual environments are left out, and links that leave the folder.
    Where the folder holds more than the skill (it is the root directory, or the file is no
    SKILL.md) only ``RESOURCES`` beside the file are taken.

    Raises:
        SkillError: more than ``MAX_FILES`` files or ``MAX_TOTAL_BYTES`` bytes, or a file name with
            a backslash, which is a folder on other systems.
    """
    path = root / path
    folder = path.parent
    files = {path.name: path.read_bytes()}
    total = len(files[path.name])
    own = path.name == SKILL_FILE and folder.resolve() != root.resolve()
    for file in _resources([folder] if own else [folder / name for name in RESOURCES]):
        if file == path or not _inside(file, folder):
            continue
        total += file.stat().st_size
        if len(files) >= MAX_FILES or total > MAX_TOTAL_BYTES:
            raise SkillError(
                f"{folder}: more than {MAX_FILES} files or {MAX_TOTAL_BYTES} bytes; move the skill "
                "into a folder of its own"
            )
        relative = file.relative_to(folder).as_posix()
        _check_relative(relative)
        files[relative] = file.read_bytes()
    return files


def _resources(folders: list[Path]) -> Iterator[Path]:
    for start in folders:
        for folder, names in _walk(start):
            yield from (Path(folder) / name for name in names)


def _inside(file: Path, folder: Path) -> bool:
    target = file.resolve()
    return target.is_file() and target.is_relative_to(folder.resolve())


def _walk(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Folders and the visible files in them, in a fixed order, without following links."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not _skipped(Path(folder) / name))
        yield folder, sorted(name for name in names if not name.startswith("."))


def _skipped(folder: Path) -> bool:
    name = folder.name
    return (
        name.startswith(".")
        or name in _SKIPPED
        or name.endswith((".egg-info", ".dist-info"))
        or (folder / "pyvenv.cfg").exists()
    )


def materialise(directory: Path, files: Mapping[str, bytes], name: str, content: bytes) -> Path:
    """Write a skill's folder with ``content`` as the skill file ``name``; returns its path.

    Scripts (files that start with ``#!``) are made executable.

    Raises:
        SkillError: a path that would leave ``directory``.
    """
    for relative, data in {**files, name: content}.items():
        _check_relative(relative)
        target = directory / PurePosixPath(relative)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        if data.startswith(b"#!"):
            target.chmod(0o755)
    return directory / name


def _check_relative(path: str) -> None:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\\" in path:
        raise SkillError(f"{path!r} is no path inside of a skill's folder")
