"""The versions of a skill that a user names: of a file, a run or a git revision, or none."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.errors import UserError
from pytest_skillopt.git import Clone, Git, GitError, Tree
from pytest_skillopt.rollouts.folders import TemporaryFolder
from pytest_skillopt.run.project import version_of_run
from pytest_skillopt.skill.folder import belongs, holds_more, is_resource
from pytest_skillopt.skill.read import read_bounded, skill_files
from pytest_skillopt.skill.text import SkillError, Text
from pytest_skillopt.skill.trained import check_kind
from pytest_skillopt.skill.version import NO_SKILL, SKILL_FILE, Version, place_of
from pytest_skillopt.skill.write import materialise
from pytest_skillopt.words import named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_skillopt.run.directory import Home
    from pytest_skillopt.skill.trained import Trained

_SKILL_LIMIT = 10_000_000
_MOST_BYTES = 5_000_000
"""Most bytes of a SKILL.md or a patch."""
_SHORTEST_VERSION = 6
_CHANGED = re.compile(r"^(?:---|\+\+\+) ([^\t\r\n]+)", re.MULTILINE)
NONE = "none"
"""Version name that stands for no skill at all."""


def find(root: Path, home: Home, name: str) -> Callable[[str, Version, Trained], Version]:
    """Find the version of a skill that a user names; return what reads it.

    It is a SKILL.md, a skill's folder, a patch, a version of a run, which may be shortened,
    ``none``, or a git revision. It is read for a skill, its version on disk, and the files that are
    trained with it.

    Raises:
        SkillError: the name is none of them, or is ambiguous; also when it is read.
    """
    path = root / name
    if path.is_file() or (path / SKILL_FILE).is_file():
        return lambda skill, now, trained: with_change(root, skill, now, name, trained)
    if name == NONE:
        return lambda skill, now, trained: NO_SKILL
    kept = _kept_versions(home, name)
    if len(kept) > 1:
        raise SkillError(f"several versions of runs begin with {name!r}: write more characters")
    if kept:
        run = kept[0].parents[1].name
        return lambda skill, now, trained: version_of_run(home, run, kept[0].stem)
    try:
        revision = Revision(root, name)
    except SkillError as error:
        words = f"{name!r} is neither a file nor a version of a run in {home.runs}, and {error}"
        raise SkillError(words) from None

    def read(skill: str, now: Version, trained: Trained) -> Version:
        version = revision.skill(skill, trained)
        if version is None:
            raise SkillError(f"{skill} did not exist at git revision {name!r}")
        return version

    return read


def _kept_versions(home: Home, name: str) -> list[Path]:
    plain = len(name) >= _SHORTEST_VERSION and all(c in "0123456789abcdef" for c in name)
    found = home.runs.glob(f"*/skills/{name}*.md") if plain else ()
    return list({path.name: path for path in found}.values())


class Revision:
    """A git revision of the project.

    Raises:
        SkillError: no git, no repository, or no such revision.
    """

    def __init__(self, root: Path, ref: str) -> None:
        self._root = root
        self._ref = ref
        with self._explained("the project"):
            self._git = Clone(root)
            commit = self._git.resolve(ref)
            shallow = self._git.is_shallow()
        if commit is None:
            hint = " (in a shallow clone, fetch it first)" if shallow else ""
            if ref and (root / ref).exists():
                hint = f"; {ref} is a path: write the revision before it"
            raise SkillError(f"there is no git revision {ref!r}{hint}")
        self._commit = commit
        with self._explained("the project"):
            self._tree = Tree(self._git, commit)

    def skill(self, skill: str, trained: Trained) -> Version | None:
        """Return a skill with the files ``trained`` with it, None if it did not exist.

        Raises:
            SkillError: a submodule holds it, or it cannot be read.
        """
        with self._explained(skill):
            main = self._text(skill)
            if main is None:
                return None
            version = Version({SKILL_FILE: main})
            for name in trained.names(self._found(skill)):
                if text := self._text(place_of(skill, name)):
                    version |= {name: text}
            return version

    def _found(self, skill: str) -> dict[str, str]:
        """Return the files that belong to a skill: path without links by name, in its folder."""
        folder = self._real(posixpath.dirname(skill))
        assert folder is not None, "it holds the skill"
        only = holds_more(self._root / skill, self._root)
        return {
            name: posixpath.relpath(real, folder)
            for name, real in self._tree.beneath(folder)
            if self._is_ours(real) and belongs(name, only_resources=only)
        }

    def moved(self, skill: str) -> str:
        """Return the path from which a skill was moved or copied since; empty if from none.

        Git tells it, for what is committed or staged. Of files that have gone the most similar one
        counts, however much was rewritten.
        """
        path = os.path.realpath(self._root / skill)
        with self._explained(skill):
            for how in ("-M01%",), ("-C", "--find-copies-harder"):
                told = self._git.run(
                    "diff-index", "--cached", "-z", "-l0", *how, "--diff-filter=CR",
                    "--name-status", self._commit,
                )  # fmt: skip
                names = os.fsdecode(told).split("\0")
                for old, new in zip(names[1::3], names[2::3], strict=True):
                    is_it = str(self._git.directory / new) == path and self._is_ours(old)
                    if is_it and _file_name(old) == _file_name(skill):
                        return old.removeprefix(self._git.prefix)
        return ""

    def check_known(self, skill: str) -> None:
        """Raise UsageError if no revision of this repository can hold a skill that is on disk."""
        with self._explained(skill):
            path = (self._root / skill).resolve()
            place = Clone(path.parent).directory
            if place != self._git.directory:
                raise GitError(f"it lies in another repository, {place}: run the check in that one")
            if self._git.ignores(path):
                raise GitError("git ignores it, so that no revision holds it: remove it there")

    def _real(self, path: str) -> str | None:
        real = self._tree.real(posixpath.normpath(self._git.prefix + path))
        return real if real is not None and self._is_ours(f"{real}/") else None

    def _is_ours(self, path: str) -> bool:
        return path.startswith(self._git.prefix)

    def _text(self, name: str) -> Text | None:
        real = self._real(name)
        if real is None or real not in self._tree.files:
            return None
        return Text.from_bytes(self._checked_out(real))

    def _checked_out(self, path: str) -> bytes:
        """Read a file, with CRLF if that on disk has it: ``core.autocrlf`` makes it so."""
        data = self._git.read(self._tree.files[path].id, limit=_SKILL_LIMIT)
        try:
            there = read_bounded(self._git.directory / path, _SKILL_LIMIT)
        except (OSError, SkillError):
            return data
        crlf = b"\r" not in data and there.count(b"\n") == there.count(b"\r\n") > 0
        return data.replace(b"\n", b"\r\n") if crlf else data

    @contextlib.contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except UserError as error:
            raise SkillError(f"{name} at {self._ref}: {error}") from error


def _file_name(path: str) -> str:
    """Return the name of a file as systems compare it that take no notice of case."""
    return posixpath.basename(path).casefold()


def with_change(root: Path, skill: str, now: Version, name: str, trained: Trained) -> Version:
    """Return the skill with a change: another SKILL.md, a skill's folder, or a patch.

    Paths are relative to the project's root directory; that of the change, ``name``, may be
    absolute. ``now`` is the skill on disk.

    Raises:
        SkillError: the change cannot be read or applied, or is in a file that is not trained.
        GitError: git is needed for a patch and cannot be run.
        OSError: a file cannot be read.
    """
    path = root / name
    if path.is_dir():
        if not (path / SKILL_FILE).is_file():
            raise SkillError(f"the folder has no {SKILL_FILE}")
        only = holds_more(root / skill, root)
        theirs = skill_files(path / SKILL_FILE, path, only_resources=only)
        theirs[Path(skill).name] = theirs.pop(SKILL_FILE)
        return _changed(now, skill_files(root / skill, root), theirs, Path(skill).name, trained)
    data = read_bounded(path, _MOST_BYTES)
    if not re.match(rb"(?:diff --git |--- |Index: )(?!-)", data.lstrip()):
        return now | {SKILL_FILE: Text.from_bytes(data)}
    with TemporaryFolder("skillopt-try-") as folder:
        copy = folder / skill
        ours = skill_files(root / skill, root)
        materialise(copy.parent, ours)
        git = Git(folder, {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)})
        git.run("apply", "--whitespace=nowarn", f"-p{_strip(data, skill)}", "-", input=data)
        for path in folder.rglob("*"):
            if not path.is_dir() and not path.is_relative_to(copy.parent):
                raise SkillError(f"it changes {path.relative_to(folder)}, outside of the skill")
        theirs = skill_files(copy, folder)
        return _changed(now, ours, theirs, copy.name, trained)


def _changed(
    now: Version,
    ours: Mapping[str, bytes],
    theirs: Mapping[str, bytes],
    main: str,
    trained: Trained,
) -> Version:
    """Return a skill with the files of a changed copy.

    Args:
        now: the skill on disk.
        ours: files of its folder.
        theirs: those of the copy.
        main: name of the skill's file in both.
        trained: what may change.

    Raises:
        SkillError: the copy changes what is not trained, or has a file that cannot be.
    """
    refused = []
    for name in sorted(theirs.keys() | ours.keys()):
        is_trained = name == main or trained.includes(name)
        if theirs.get(name) == ours.get(name):
            continue
        if is_trained and name in theirs:
            key = SKILL_FILE if name == main else name
            now |= {key: _text_of(key, theirs[name])}
        elif is_trained or is_resource(name):
            refused.append(name)
    if refused:
        raise SkillError(f"it changes {named(refused)}, outside of skillopt_files")
    return now


def _text_of(name: str, data: bytes) -> Text:
    check_kind(name)
    try:
        return Text.from_bytes(data)
    except SkillError as error:
        raise SkillError(f"{name}: {error}") from None


def _strip(patch: bytes, skill: str) -> int:
    """Return the number of leading folders of the patch's paths that the skill's path lacks."""
    parent = Path(skill).parent.as_posix()
    wanted = f"/{parent}/" if parent != "." else f"/{skill}"
    for path in map(str, _CHANGED.findall(patch.decode(errors="replace"))):
        where = f"/{path}".find(wanted)
        if where > 0:
            return path[:where].count("/")
    raise SkillError(f"the patch does not change {skill}")
