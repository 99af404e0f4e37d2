"""Skill files on disk: found, read with checks, written atomically, sent to workers."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import stat
import tempfile
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING

from pytest_skillopt.skill.diff import unified
from pytest_skillopt.skill.text import SkillError, Text
from pytest_skillopt.skill.version import EMPTY, SKILL_FILE, Version, changes, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_skillopt.settings import Settings

TEXTS = (".md", ".markdown", ".mdx", ".txt", ".rst", ".adoc")
"""Extensions of files that can be trained with a skill."""
MAX_SKILL_BYTES = 1_000_000
"""Maximum bytes of a skill document."""
MAX_FILES = 2_000
MAX_TOTAL_BYTES = 20_000_000
"""Bounds of a skill directory that is sent to workers."""
_MOST_READ = 200_000
"""Maximum bytes of a file that a model is shown."""
RESOURCES = ("scripts", "references", "assets")
"""Folders of a skill (Agent Skills specification)."""

_SKIPPED = frozenset(
    {"node_modules", "__pycache__", "build", "dist", "target", "site-packages", "venv", "env"}
)
AGENT_FOLDERS = (
    ".agents", ".claude", ".codex", ".cursor", ".gemini", ".github", ".opencode", ".pi", ".qwen",
)  # fmt: skip
"""Hidden folders in which agents look for the skills of a project or of a part of it."""
_NOT_SEARCHED = _SKIPPED | {"tests", "test", "fixtures", "testdata", "test_data", "worktrees"}
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
            shown = ", ".join(path.relative_to(root).as_posix() for path in found[:5])
            more = f" and {len(found) - 5} more" if len(found) > 5 else ""
            raise SkillError(f"{len(found)} skills under {folder}: {shown}{more}; {way_out}")
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
    return sorted(path for path in found if not (path.is_symlink() and path.resolve() in found))


def catalogue(root: Path) -> dict[str, Text]:
    """Read every skill of ``skill_paths``, by its path relative to ``root``.

    One that cannot be read is left out.
    """
    found = {}
    for path in skill_paths(root):
        with contextlib.suppress(SkillError):
            found[path.relative_to(root).as_posix()] = read_skill(path, root)
    return found


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
    place, top = root / path, root.resolve()
    try:
        folder, target = place.parent.resolve(), place.resolve()
    except (OSError, RuntimeError):  # links in a circle
        return PurePath(path).as_posix()
    real = target if target.name == place.name else folder / place.name
    return (real.relative_to(top) if real.is_relative_to(top) else PurePath(path)).as_posix()


def real_places(names: Iterable[str], skill: str, root: Path) -> dict[str, str]:
    """Return the paths of a skill's files relative to the root directory, by name, with ``/``.

    Links inside of the project are followed.
    """
    found = {}
    for name in names:
        place = (root / place_of(skill, name)).resolve()
        if place.is_relative_to(root.resolve()):
            found[name] = place.relative_to(root.resolve()).as_posix()
    return found


def patch_of(before: Version, after: Version, skill: str, root: Path) -> str:
    """Return the change of a skill in a project as a patch; empty if there is none."""
    return unified(before, after, skill, real_places(after, skill, root))


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
        if path.is_symlink():
            nowhere = f"a link to {path.readlink()}, which does not exist"
            raise SkillError(f"{path}: {nowhere}; correct the link, or remove it") from None
        set_it = f"set skillopt_skill or skill= on the marker to the path of a {SKILL_FILE}"
        way_out = f"{set_it}, or write one (docs/getting-started.md)"
        raise SkillError(f"{path}: no such file; {way_out}") from None
    except (OSError, RuntimeError) as error:
        raise SkillError(f"{path}: cannot be resolved ({error})") from None


@dataclass(frozen=True, slots=True)
class Trained:
    """The files that are trained with a skill."""

    patterns: str = ""
    """Patterns of paths in its folder (``fnmatch``), with commas between them; one that begins with
    ``../`` names a single document outside."""

    @classmethod
    def of(cls, settings: Settings) -> Trained:
        return cls(settings.files)

    @property
    def _wanted(self) -> list[str]:
        return [pattern.strip() for pattern in self.patterns.split(",")]

    @property
    def outside(self) -> list[str]:
        """Paths of the documents outside of the skill's folder, relative to it."""
        return [pattern for pattern in self._wanted if is_outside(pattern)]

    def includes(self, name: str) -> bool:
        """Check if the patterns name a path."""
        inside = _stays_inside(name) and any(fnmatchcase(name, p) for p in self._wanted if p)
        return inside or name in self.outside

    def check(self, name: str) -> None:
        """Refuse a path (SkillError) that is not trained, or is not of a kind that can be."""
        if not self.includes(name):
            raise SkillError(
                f"{name} is not trained with the skill "
                f"(skillopt_files = {self.patterns or 'nothing'})"
            )
        check_kind(name)


def check_kind(name: str) -> None:
    """Refuse (SkillError) a path that is not one of a text document."""
    if not name.isprintable() or os.fsencode(name).decode("utf-8", "replace") != name:
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
        raise SkillError(f"{shown}: this name is not UTF-8, or cannot be shown; rename it")
    if PurePosixPath(name).suffix.lower() not in TEXTS:
        raise SkillError(f"{name}: only text documents are trained ({', '.join(TEXTS)})")


def is_outside(name: str) -> bool:
    """Check if a trained file lies outside of the skill's folder, such as the project's AGENTS.md.

    Its path is normal, so that it has one name only.
    """
    return name.startswith("../") and posixpath.normpath(name) == name


def read_version(path: Path, root: Path, trained: Trained) -> Version:
    """Read a skill with the files that are trained with it.

    Raises:
        SkillError: as ``read_skill``, for any of the files.
    """
    version = Version({SKILL_FILE: read_skill(path, root)})
    folder = (root / path).parent
    names = [name for name in file_names(root / path, root) if trained.includes(name)]
    for name in [*(n for n in names if not _is_second_name(folder, n)), *trained.outside]:
        try:
            check_kind(name)
            if is_outside(name) and (folder / name).is_symlink():
                raise SkillError(f"{name}: is a link; name the file that it points to")
            version |= {name: read_skill(folder / name, root)}
        except SkillError as error:
            raise SkillError(f"{error}, or leave it out of skillopt_files") from None
    return version


def _is_second_name(folder: Path, name: str) -> bool:
    """Tell whether a file of a skill's folder is, by a link, another file of that folder."""
    real, own = (folder / name).resolve(), folder.resolve()
    return real.is_relative_to(own) and real != own / name


def left_out(path: Path, root: Path) -> list[str]:
    """Describe the links in a skill's folder that lead out of the project, or nowhere."""
    path = root / path
    found = []
    for part in RESOURCES:
        for here, folders, names in os.walk(path.parent / part):
            for place in (Path(here, name) for name in (*folders, *names)):
                if place.is_symlink() and not _is_within(place, root, path.parent):
                    name = place.relative_to(path.parent).as_posix()
                    found.append(f"{name} is a link to {place.readlink()}")
    return found


def write_version(
    root: Path, skill: str, before: Version, after: Version, trained: Trained
) -> None:
    """Replace the changed files of a skill, each atomically, and all of them or none.

    The new content is written beside the files and flushed to disk, then moved into place, the
    SKILL.md last; a file's mode is kept. A link is followed inside of the project ``root``. Only a
    kill between two moves leaves some files unchanged: see ``run.directory``. Only text documents
    are written, and outside of the skill's folder only what ``trained`` names.

    Raises:
        SkillError: a file differs from ``before``, or may not or cannot be written; no file was
            changed.
    """
    check_names(after, trained)
    places = {name: root / place_of(skill, name) for name in reversed([*after])}
    targets = {name: place.resolve() for name, place in places.items()}
    changed = [*reversed(changes(before, after))]

    def check(name: str) -> None:
        inside = places[name].parent if is_outside(name) else root
        _check_unchanged(places[name], targets[name], inside, before.get(name, EMPTY).data)

    written: dict[str, Path] = {}
    moved: list[str] = []
    try:
        for name in changed:
            check(name)
            written[name] = _write_beside(targets[name], after[name].data)
        for name in targets:
            check(name)
        for name in changed:
            written[name].replace(targets[name])
            moved.append(name)
    except OSError as error:
        for name in moved:
            _restore(targets[name], before.get(name, EMPTY).data)
        folder = places[SKILL_FILE].parent
        raise SkillError(f"{folder}: cannot be written ({error.strerror})") from None
    finally:
        for temporary in written.values():
            temporary.unlink(missing_ok=True)


def _check_unchanged(place: Path, target: Path, inside: Path, data: bytes) -> None:
    """Raise SkillError if a file has left a folder, or holds other data; a missing one is empty."""
    if not target.is_relative_to(inside.resolve()):
        raise SkillError(f"{place}: not written, it is now outside of the project")
    found = target.read_bytes() if target.exists() else b""
    if found != data:
        raise SkillError(f"{place}: not written, the file was changed during the run")


def _restore(file: Path, data: bytes) -> None:
    """Write a file again as it was; remove it if it was not there."""
    if data:
        _write_beside(file, data).replace(file)
    else:
        file.unlink()


def check_names(version: Version, trained: Trained) -> None:
    """Refuse (SkillError) a version with a file that may not be written.

    It is no text document, or lies outside of the skill's folder and is not trained.

    A version may come from an untrusted cache.
    """
    for name in version:
        check_kind(name)
        if not _stays_inside(name) and name not in trained.outside:
            raise SkillError(f"{name}: not written, it lies outside of the skill's folder")


def _write_beside(target: Path, data: bytes) -> Path:
    """Write a version of a file beside it, with its mode, and flush it to disk."""
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o644
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
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def skill_files(path: Path, root: Path) -> dict[str, bytes]:
    """Read the folder of a skill: content by relative path, the skill file included.

    Hidden files, caches, virtual environments and links that leave the project are left out. If the
    folder holds more than the skill (it is the root directory, or the file is not a SKILL.md), only
    ``RESOURCES`` beside the file are read.

    Raises:
        SkillError: more than ``MAX_FILES`` files or ``MAX_TOTAL_BYTES`` bytes, or a file name with
            a backslash, which separates folders on other systems.
    """
    path = root / path
    files = {name: path.parent / name for name in [path.name, *file_names(path, root)]}
    try:
        size = sum(file.stat().st_size for file in files.values())
    except OSError as error:
        raise SkillError(f"{error.filename}: cannot be read ({error.strerror})") from None
    if len(files) > MAX_FILES or size > MAX_TOTAL_BYTES:
        raise SkillError(
            f"{path.parent}: more than {MAX_FILES} files or {MAX_TOTAL_BYTES} bytes; move the "
            "skill into a folder of its own"
        )
    for name in files:
        _check_relative(name)
    try:
        return {name: read_bounded(file, MAX_TOTAL_BYTES) for name, file in files.items()}
    except OSError as error:
        raise SkillError(f"{error.filename}: cannot be read ({error.strerror})") from None


def file_names(path: Path, root: Path) -> list[str]:
    """List the files beside a skill file, relative to its folder; see ``skill_files``."""
    own = path.name == SKILL_FILE and path.parent.resolve() != root.resolve()
    folders = [""] if own else RESOURCES
    names = _files(path.parent, folders, root)
    return [name for name in names if name != path.name]


def _files(folder: Path, parts: Sequence[str], root: Path) -> list[str]:
    """List visible files in parts of a folder, relative to it; links inside ``root`` are followed.

    A link to a folder that holds the link is not.
    """
    found = []
    steps = (step for part in parts for step in os.walk(folder / part, followlinks=True))
    for here, folders, names in steps:
        inner = [Path(here, name) for name in sorted(folders)]
        folders[:] = [
            place.name
            for place in inner
            if not _skipped(place)
            and _is_within(place, root, folder)
            and not Path(here).resolve().is_relative_to(place.resolve())
        ]
        files = [Path(here, name) for name in sorted(names) if not name.startswith(".")]
        files = [file for file in files if file.is_file() and _is_within(file, root, folder)]
        found += [file.relative_to(folder).as_posix() for file in files]
        if len(found) > MAX_FILES:
            break
    return found


def _is_within(place: Path, *folders: Path) -> bool:
    """Check if a path exists, and lies in one of the folders after links are resolved."""
    try:
        target = place.resolve(strict=True)
    except (OSError, RuntimeError):  # links to nothing, or in a circle
        return False
    return any(target.is_relative_to(folder.resolve()) for folder in folders)


def _skipped(folder: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name.endswith((".egg-info", ".dist-info"))
    return hidden or folder.name in _SKIPPED or (folder / "pyvenv.cfg").exists()


def is_inside(file: Path, folder: Path) -> bool:
    """Check if a file exists, and lies in the folder after links are resolved."""
    return file.is_file() and _is_within(file, folder)


def reader(folder: Path, root: Path) -> list[Callable[[str], str]]:
    """Make the tool that reads the ``RESOURCES`` of a skill; empty if it has none.

    Links are followed inside of the project ``root``.
    """
    files = {name: folder / name for name in _files(folder, RESOURCES, root)}

    def read_skill_file(path: str) -> str:
        """Read a file of the skill that its instructions point to.

        Args:
            path: as it stands in the instructions, such as references/rules.md
        """
        file = files.get(posixpath.normpath(path))
        if file is None or not (file.is_file() and _is_within(file, folder, root)):
            return f"Error: the skill has no file {path!r}; it has {', '.join(sorted(files))}"
        text = file.read_bytes()[:_MOST_READ].decode("utf-8", "replace")
        return text if file.stat().st_size <= _MOST_READ else f"{text}\n[the file goes on]"

    return [read_skill_file] if files else []


def materialise(directory: Path, files: Mapping[str, bytes], name: str, content: bytes) -> Path:
    """Write a skill's folder with ``content`` as the skill file ``name``; return its path.

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
    if not _stays_inside(path):
        raise SkillError(f"{path!r} is not a path inside of a skill's folder")


def _stays_inside(path: str) -> bool:
    pure = PurePosixPath(path)
    return bool(pure.parts) and not (pure.is_absolute() or ".." in pure.parts or "\\" in path)


def unnamed(path: Path) -> str:
    """Name a skill without a name: by its folder, or by its file if that is not a SKILL.md."""
    return path.parent.name if path.name == SKILL_FILE else path.stem


def slug(name: str) -> str:
    """Make a text of at most 64 lower-case letters, digits and inner hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:64].strip("-") or "skill"
