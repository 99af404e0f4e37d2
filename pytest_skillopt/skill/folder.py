"""The folder of a skill: which of its files belong to the skill."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_skillopt.skill.find import SKIPPED
from pytest_skillopt.skill.version import SKILL_FILE

MAX_FILES = 2_000
"""Maximum files of a skill's folder."""
RESOURCES = ("scripts", "references", "assets")
"""Folders of a skill (Agent Skills specification)."""


def belongs(name: str, main: str, *, only_resources: bool) -> bool:
    """Check if a file of a skill's folder belongs to the skill.

    Hidden files, caches and packages do not. If the folder holds more than the skill (it is the
    root directory, or the skill's file is not a SKILL.md), only those in ``RESOURCES`` do.

    Args:
        name: path in the folder, with ``/``.
        main: name of the skill's file.
        only_resources: the folder is known to hold more.
    """
    *folders, file = name.split("/")
    is_resource = bool(folders) and folders[0] in RESOURCES
    if not is_resource and (only_resources or main != SKILL_FILE):
        return False
    return name != main and not file.startswith(".") and not any(map(_is_skipped, folders))


def _is_skipped(folder: str) -> bool:
    hidden = folder.startswith(".") or folder.endswith((".egg-info", ".dist-info"))
    return hidden or folder in SKIPPED


def file_names(path: Path, root: Path, *, only_resources: bool = False) -> list[str]:
    """List the files that belong to a skill, relative to its folder, without the skill's file.

    Virtual environments are left out, and links that leave the project ``root``. A link to a folder
    that holds the link is not followed.
    """
    folder, found = path.parent, list[str]()
    only_resources |= folder.resolve() == root.resolve()

    def is_part(file: Path) -> bool:
        name = file.relative_to(folder).as_posix()
        return belongs(name, path.name, only_resources=only_resources)

    for here, folders, names in os.walk(folder, followlinks=True):
        inner = [Path(here, name) for name in sorted(folders)]
        folders[:] = [
            place.name
            for place in inner
            if is_part(place / "file")
            and not (place / "pyvenv.cfg").exists()
            and is_within(place, root, folder)
            and not Path(here).resolve().is_relative_to(place.resolve())
        ]
        files = [Path(here, name) for name in sorted(names)]
        files = [f for f in files if is_part(f) and f.is_file() and is_within(f, root, folder)]
        found += [file.relative_to(folder).as_posix() for file in files]
        if len(found) > MAX_FILES:
            break
    return found


def is_within(place: Path, *folders: Path) -> bool:
    """Check if a path exists, and lies in one of the folders after links are resolved."""
    try:
        target = place.resolve(strict=True)
    except (OSError, RuntimeError):  # links to nothing, or in a circle
        return False
    return any(target.is_relative_to(folder.resolve()) for folder in folders)


def is_inside(file: Path, folder: Path) -> bool:
    """Check if a file exists, and lies in the folder after links are resolved."""
    return file.is_file() and is_within(file, folder)


def left_out(path: Path, root: Path) -> list[str]:
    """Describe the links in a skill's folder that lead out of the project, or nowhere."""
    path = root / path
    found = []
    for part in RESOURCES:
        for here, folders, names in os.walk(path.parent / part):
            for place in (Path(here, name) for name in (*folders, *names)):
                if place.is_symlink() and not is_within(place, root, path.parent):
                    name = place.relative_to(path.parent).as_posix()
                    found.append(f"{name} is a link to {place.readlink()}")
    return found
