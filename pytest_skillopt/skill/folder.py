"""The folder of a skill: which of its files belong to the skill."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.skill.find import SKIPPED
from pytest_skillopt.skill.version import SKILL_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FILES = 2_000
"""Maximum files of a skill's folder."""
RESOURCES = ("scripts", "references", "assets")
"""Folders of a skill (Agent Skills specification)."""


def holds_more(path: Path, root: Path) -> bool:
    """Check if the folder of a skill's file holds more than the skill.

    It is the root directory of the project, or the file is not a SKILL.md.
    """
    return path.name != SKILL_FILE or path.parent.resolve() == root.resolve()


def belongs(name: str, *, only_resources: bool) -> bool:
    """Check if a file belongs to the skill in whose folder it is: no hidden one, cache or package.

    Args:
        name: path in the folder, with ``/``.
        only_resources: the folder holds more than the skill, of which only ``RESOURCES`` are.
    """
    *folders, file = name.split("/")
    if only_resources and not is_resource(name):
        return False
    return not file.startswith(".") and not any(map(_is_skipped, folders))


def is_resource(name: str) -> bool:
    """Check if a file is in one of the ``RESOURCES``."""
    return name.startswith(tuple(f"{part}/" for part in RESOURCES))


def _is_skipped(folder: str) -> bool:
    hidden = folder.startswith(".") or folder.endswith((".egg-info", ".dist-info"))
    return hidden or folder in SKIPPED


def file_names(path: Path, root: Path, *, only_resources: bool | None = None) -> list[str]:
    """List the files that belong to a skill, relative to its folder, without the skill's file.

    Virtual environments are left out, and links that leave the project ``root``. By default,
    ``holds_more`` says if only ``RESOURCES`` are listed.
    """
    found = []
    for place in _places(path, root, only_resources=only_resources):
        if place != path and place.is_file() and is_within(place, root, path.parent):
            found.append(place.relative_to(path.parent).as_posix())
        if len(found) > MAX_FILES:
            break
    return found


def left_out(path: Path, root: Path) -> list[str]:
    """Describe the links in a skill's folder that lead out of the project, or nowhere."""
    path = root / path
    return [
        f"{place.relative_to(path.parent).as_posix()} is a link to {place.readlink()}"
        for place in islice(_places(path, root), MAX_FILES)
        if place.is_symlink() and not is_within(place, root, path.parent)
    ]


def _places(path: Path, root: Path, *, only_resources: bool | None = None) -> Iterator[Path]:
    """Yield the files and folders that belong to a skill.

    Links inside of the project are followed, but none to a folder that holds the link.
    """
    folder = path.parent
    only = holds_more(path, root) if only_resources is None else only_resources

    def is_part(file: Path) -> bool:
        return belongs(file.relative_to(folder).as_posix(), only_resources=only)

    for here, folders, names in os.walk(folder, followlinks=True):
        inner = [Path(here, name) for name in sorted(folders)]
        inner = [p for p in inner if is_part(p / "file") and not (p / "pyvenv.cfg").exists()]
        folders[:] = [
            place.name
            for place in inner
            if is_within(place, root, folder)
            and not Path(here).resolve().is_relative_to(place.resolve())
        ]
        yield from inner
        yield from filter(is_part, [Path(here, name) for name in sorted(names)])


def is_within(place: Path, *folders: Path) -> bool:
    """Check if a path exists, and lies in one of the folders after links are resolved."""
    try:
        target = place.resolve(strict=True)
    except (OSError, RuntimeError):  # links to nothing, or in a circle
        return False
    return any(target.is_relative_to(folder.resolve()) for folder in folders)
