"""Write a version of a skill to disk, all its files or none."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pytest_skillopt.skill.text import SkillError
from pytest_skillopt.skill.trained import check_names
from pytest_skillopt.skill.version import (
    EMPTY,
    SKILL_FILE,
    changes,
    check_inside,
    is_outside,
    place_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt.skill.trained import Trained
    from pytest_skillopt.skill.version import Version


def write_version(
    root: Path, skill: str, before: Version, after: Version, trained: Trained
) -> None:
    """Replace the changed files of a skill, each atomically, and all of them or none.

    The new content is written beside the files and flushed to disk, then moved into place, the
    SKILL.md last; a file's mode is kept, and a file that ``after`` has not is removed. A link is
    followed inside of the project ``root``. Only a kill between two moves leaves some files
    unchanged: see ``run.directory``. Only text documents are written, and outside of the skill's
    folder only what ``trained`` names.

    Raises:
        SkillError: a file differs from ``before``, or may not or cannot be written; no file was
            changed.
    """
    every = before | after
    check_names(every, trained)
    places = {name: root / place_of(skill, name) for name in reversed([*every])}
    targets = {name: Path(os.path.realpath(place)) for name, place in places.items()}
    changed = [*reversed(changes(before, after))]

    def check() -> None:
        for name, place in places.items():
            inside = place.parent if is_outside(name) else root
            _check_unchanged(place, targets[name], inside, before.get(name, EMPTY).data)

    written: dict[str, Path] = {}
    moved: list[str] = []
    try:
        check()
        for name in [name for name in changed if name in after]:
            written[name] = _write_beside(targets[name], after[name].data)
        check()
        for name in changed:
            _replace(targets[name], written.get(name))
            moved.append(name)
    except OSError as error:
        for name in moved:
            _restore(targets[name], before.get(name, EMPTY).data)
        folder = places[SKILL_FILE].parent
        raise SkillError(f"{folder}: cannot be written ({error.strerror})") from None
    finally:
        for temporary in written.values():
            temporary.unlink(missing_ok=True)


def _replace(target: Path, new: Path | None) -> None:
    """Move a new file to its place, or remove the file there if there is no new one."""
    if new is None:
        target.unlink()
    else:
        new.replace(target)


def _check_unchanged(place: Path, target: Path, inside: Path, data: bytes) -> None:
    """Raise SkillError if a file has left a folder, or holds other data; a missing one is empty."""
    if not target.is_relative_to(inside.resolve()):
        raise SkillError(f"{place} is now outside of the project")
    found = target.read_bytes() if target.exists() else b""
    if found != data:
        raise SkillError(f"{place} was changed during the run")


def _restore(file: Path, data: bytes) -> None:
    """Write a file again as it was; remove it if it was not there."""
    if data:
        _write_beside(file, data).replace(file)
    else:
        file.unlink()


def _write_beside(target: Path, data: bytes) -> Path:
    """Write a version of a file beside it, with its mode, and flush it to disk."""
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o644
    if not mode & stat.S_IWUSR:
        raise PermissionError(errno.EACCES, f"{target.name} is read-only; allow it by chmod u+w")
    return write_beside(target, data, mode=mode, flush=True)


def write_beside(target: Path, data: bytes, *, mode: int = 0o600, flush: bool = False) -> Path:
    """Write a temporary file, ``.NAME.*.tmp``, that can be moved onto ``target`` atomically."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            if flush:
                stream.flush()
                os.fsync(stream.fileno())
        temporary.chmod(mode)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = error.filename or str(target)
        raise
    return temporary


def materialise(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write the folder of a skill for an agent: files by their paths in it.

    Scripts (files that start with ``#!``) are made executable.

    Raises:
        SkillError: a path that would leave ``directory``.
    """
    for relative, data in files.items():
        check_inside(relative)
        target = directory / PurePosixPath(relative)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        if data.startswith(b"#!"):
            target.chmod(0o755)
