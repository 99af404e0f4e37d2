"""Find the skills of a project, and name them."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from pytest_skillopt.skill.text import SkillError
from pytest_skillopt.skill.version import SKILL_FILE
from pytest_skillopt.words import named

if TYPE_CHECKING:
    from collections.abc import Sequence

SKIPPED = frozenset(
    {"node_modules", "__pycache__", "build", "dist", "target", "site-packages", "venv", "env"}
)
AGENT_FOLDERS = (
    ".agents", ".claude", ".codex", ".cursor", ".gemini", ".github", ".opencode", ".pi", ".qwen",
)  # fmt: skip
"""Hidden folders in which agents look for the skills of a project or of a part of it."""
_NOT_SEARCHED = SKIPPED | {"tests", "test", "fixtures", "testdata", "test_data", "worktrees"}
"""Folders whose skills are test data or, in worktrees, an agent's copies of the project."""


def find_skill(root: Path, start: Path, skills: Sequence[Path]) -> Path:
    """Find the skill for the tests in the folder ``start``, among those of ``skill_paths``.

    The search goes from the folder up to ``root``; the first folder that has a SKILL.md in it or
    below it decides.

    Raises:
        SkillError: there is none, or the deciding folder has several; the message names them, and
            the settings that choose one.
    """
    way_out = "set skillopt_skill, or skill= on the marker, or put the tests beside their skill"
    for folder in (start, *start.parents) if start.is_relative_to(root) else (root,):
        if (folder / SKILL_FILE).is_file():
            return folder / SKILL_FILE
        found = [path for path in skills if path.is_relative_to(folder)]
        if len(found) == 1:
            return found[0]
        if found:
            shown = named((path.relative_to(root).as_posix() for path in found), 5)
            raise SkillError(f"{len(found)} skills under {folder}: {shown}; {way_out}")
        if folder == root:
            break
    raise SkillError(
        f"no {SKILL_FILE} under {root} (folders of tests, and hidden ones but "
        f"{', '.join(AGENT_FOLDERS)}, are not searched); {way_out}, or run pytest with "
        "--rootdir=FOLDER for one above, or write one (docs/getting-started.md)"
    )


def skill_paths(root: Path) -> list[Path]:
    """List every SKILL.md under ``root`` that ``is_searched``, outside of virtual environments."""
    found = []
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        inner = [here / name / SKILL_FILE for name in folders]
        wanted = {path.parent.name for path in inner if is_searched(path.relative_to(root))}
        folders[:] = sorted(n for n in wanted if not (here / n / "pyvenv.cfg").exists())
        if SKILL_FILE in names:
            found.append(here / SKILL_FILE)
    return sorted(path for path in found if not (path.is_symlink() and _target(path) in found))


def _target(link: Path) -> Path | None:
    """Return where a link leads, None if it leads in a circle."""
    real = Path(os.path.realpath(link))
    return None if real.is_symlink() else real


def is_searched(path: PurePath) -> bool:
    """Check if a skill at this path of a project is found without being named.

    Hidden folders (except ``AGENT_FOLDERS``) and folders of tests, packages and build output are
    not searched; a skill in a folder ``skills`` may have the name of one of these.
    """
    folders = path.parent.parts
    return not any(
        (name.startswith(".") and name not in AGENT_FOLDERS)
        or (above != "skills" and name in _NOT_SEARCHED)
        or name.endswith((".egg-info", ".dist-info"))
        for above, name in zip(("", *folders), folders, strict=False)
    )


def project_path(path: str | PurePath, root: Path) -> str:
    """Return the path of a skill relative to the root directory, without links, with ``/``.

    So one skill has one path, by whatever way it is reached. A link that gives the file another
    name is kept. A path that leaves the project is returned as it is.
    """
    place = root / path
    top = root.resolve()
    try:
        folder = place.parent.resolve()
        target = place.resolve()
    except (OSError, RuntimeError, ValueError):  # links in a circle, NUL
        return PurePath(path).as_posix()
    real = target if target.name == place.name else folder / place.name
    return (real.relative_to(top) if real.is_relative_to(top) else PurePath(path)).as_posix()


def unnamed(path: Path) -> str:
    """Name a skill without a name: by its folder, or by its file if that is not a SKILL.md."""
    return path.parent.name if path.name == SKILL_FILE else path.stem


def slug(name: str) -> str:
    """Make a text of at most 64 lower-case letters, digits and inner hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:64].strip("-") or "skill"
