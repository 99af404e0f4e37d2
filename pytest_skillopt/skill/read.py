"""Read skills from disk, with checks."""

from __future__ import annotations

import contextlib
import os
import posixpath
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.skill.find import skill_paths
from pytest_skillopt.skill.folder import MAX_FILES, file_names, is_within
from pytest_skillopt.skill.text import SkillError, Text
from pytest_skillopt.skill.trained import check_kind
from pytest_skillopt.skill.version import SKILL_FILE, Version, check_inside, is_outside, place_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt.skill.trained import Trained

MAX_SKILL_BYTES = 1_000_000
"""Maximum bytes of a skill document."""
MAX_TOTAL_BYTES = 20_000_000
"""Maximum bytes of a skill's folder that is sent to workers."""
_MOST_READ = 200_000
"""Maximum bytes of a file that a model is shown."""


def read_version(path: Path, root: Path, trained: Trained) -> Version:
    """Read a skill with the files that are trained with it.

    Raises:
        SkillError: as ``read_skill``, for any of the files.
    """
    version = Version({SKILL_FILE: read_skill(path, root)})
    folder = (root / path).parent
    found = {name: _own_name(folder, name) for name in file_names(root / path, root)}
    for name in trained.names(found):
        try:
            check_kind(name)
            if is_outside(name) and (folder / name).is_symlink():
                raise SkillError(f"{name}: is a link; name {_own_name(folder, name)} in its place")
            version |= {name: read_skill(folder / name, root)}
        except SkillError as error:
            raise SkillError(f"{error}, or leave it out of skillopt_files") from None
    return version


def read_again(path: str, root: Path, version: Version) -> Version:
    """Read from disk the files that a version of the skill has; a missing one is empty."""
    places = {name: root / place_of(path, name) for name in version}
    there = {name: place.read_bytes() if place.exists() else b"" for name, place in places.items()}
    return Version({name: Text(data) for name, data in there.items()})


def _own_name(folder: Path, name: str) -> str:
    """Return the path of a file without links, relative to the skill's folder."""
    return Path(os.path.relpath((folder / name).resolve(), folder.resolve())).as_posix()


def read_skill(path: Path, root: Path) -> Text:
    """Read a skill file, which must lie in the project, links resolved.

    ``path`` is absolute, or relative to the root directory.

    Raises:
        SkillError: missing, not a regular file, outside of the project, unreadable, larger than
            ``MAX_SKILL_BYTES``, or not editable (see ``Text.from_bytes``).
    """
    path = root / path
    target = _resolved(path)
    if not target.is_relative_to(root.resolve()):
        above = Path(os.path.commonpath([root.resolve(), target]))
        way_out = f"copy it into {root}"
        if above != Path(above.anchor):
            way_out += f", or run pytest with --rootdir={above}"
        raise SkillError(f"{path}: lies outside of the project ({target}); {way_out}")
    if not target.is_file():
        raise SkillError(f"{path}: is not a regular file; name one, such as a {SKILL_FILE}")
    if (size := target.stat().st_size) > MAX_SKILL_BYTES:
        raise SkillError(f"{path}: {size} bytes, at most {MAX_SKILL_BYTES} are trained; split it")
    try:
        return Text.from_bytes(target.read_bytes())
    except OSError as error:
        raise SkillError(f"{path}: cannot be read ({error.strerror})") from None
    except SkillError as error:
        raise SkillError(f"{path}: {error}") from None


def _resolved(path: Path) -> Path:
    """Return the file of a skill without links; SkillError with the way out if there is none."""
    try:
        return path.resolve(strict=True)
    except FileNotFoundError:
        if os.path.islink(path):
            nowhere = f"a link to {path.readlink()}, which does not exist"
            raise SkillError(f"{path}: {nowhere}; correct the link, or remove it") from None
        set_it = f"set skillopt_skill or skill= on the marker to the path of a {SKILL_FILE}"
        way_out = f"{set_it}, or write one (docs/getting-started.md)"
        raise SkillError(f"{path}: no such file; {way_out}") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise SkillError(f"{path}: cannot be resolved ({error})") from None


def read_bounded(path: Path, limit: int) -> bytes:
    """Read a regular file of at most ``limit`` bytes.

    Raises:
        SkillError: it is not a regular file (a pipe would never end), or is larger.
        OSError: it cannot be read.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise SkillError(f"{path}: is not a regular file")
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise SkillError(f"{path}: is larger than {limit:,} bytes")
    return data


def catalogue(root: Path) -> dict[str, Text]:
    """Read every skill of ``skill_paths``, by its path relative to ``root``.

    One that cannot be read is left out.
    """
    found = {}
    for path in skill_paths(root):
        with contextlib.suppress(SkillError):
            found[path.relative_to(root).as_posix()] = read_skill(path, root)
    return found


def skill_files(path: Path, root: Path, *, only_resources: bool | None = None) -> dict[str, bytes]:
    """Read the folder of a skill: content by relative path, the skill file included.

    Which files those are, ``file_names`` says.

    Raises:
        SkillError: more than ``MAX_FILES`` files or ``MAX_TOTAL_BYTES`` bytes, or a file name with
            a backslash, which separates folders on other systems.
    """
    path = root / path
    names = file_names(path, root, only_resources=only_resources)
    files = {name: path.parent / name for name in [path.name, *names]}
    for name in files:
        check_inside(name)
    try:
        size = sum(file.stat().st_size for file in files.values())
        if len(files) > MAX_FILES or size > MAX_TOTAL_BYTES:
            raise SkillError(
                f"{path.parent}: more than {MAX_FILES} files or {MAX_TOTAL_BYTES} bytes; move the "
                "skill into a folder of its own"
            )
        return {name: read_bounded(file, MAX_TOTAL_BYTES) for name, file in files.items()}
    except OSError as error:
        raise SkillError(f"{error.filename}: cannot be read ({error.strerror})") from None


def reader(folder: Path, root: Path) -> list[Callable[[str], str]]:
    """Make the tool that reads the ``RESOURCES`` of a skill; empty if it has none.

    Links are followed inside of the project ``root``.
    """
    names = file_names(folder / SKILL_FILE, root, only_resources=True)
    files = {name: folder / name for name in names}

    def read_skill_file(path: str) -> str:
        """Read a file of the skill that its instructions point to.

        Args:
            path: as it stands in the instructions, such as references/rules.md
        """
        file = files.get(posixpath.normpath(path))
        if file is None or not (file.is_file() and is_within(file, folder, root)):
            return f"Error: the skill has no file {path!r}; it has {', '.join(sorted(files))}"
        text = file.read_bytes()[:_MOST_READ].decode("utf-8", "replace")
        return text if file.stat().st_size <= _MOST_READ else f"{text}\n[the file goes on]"

    return [read_skill_file] if files else []
