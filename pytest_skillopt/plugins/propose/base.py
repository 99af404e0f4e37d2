"""Read from the base branch the settings, and the files that a proposal may change.

Only the commit at the base branch's tip is read, never the work tree, which the author of a
proposal may have changed.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import iniconfig  # pytest's own parser of ini files
import pytest

from pytest_skillopt.errors import UserError
from pytest_skillopt.git import Tree
from pytest_skillopt.run.project import CONFIG_FILES
from pytest_skillopt.settings import REMOVED, Settings
from pytest_skillopt.skill.find import is_searched
from pytest_skillopt.skill.version import SKILL_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_skillopt.git import Entry, Git

MAX_SKILL = 512 * 1024
"""Maximum bytes of a skill file in a proposal."""
_MAX_CONFIG = 1024 * 1024
_PREFIX = "skillopt_"


@dataclass(frozen=True, slots=True)
class Base:
    """Tip of the base branch. Paths are relative to the top of the repository."""

    commit: str
    settings: Settings
    allowed: frozenset[str]
    """Skill files that a proposal may change."""
    tree: Tree
    git: Git

    def read(self, entry: Entry) -> bytes:
        return self.git.read(entry.id, limit=MAX_SKILL)


def read_base(git: Git, commit: str) -> Base:
    """Read a commit's settings for proposals.

    Raises:
        UserError: its configuration cannot be read.
    """
    tree = Tree(git, commit)

    def read(name: str) -> str | None:
        entry = tree.files.get(git.prefix + name)
        if entry is None or not entry.is_file:
            return None
        return git.read(entry.id, limit=_MAX_CONFIG).decode("utf-8", "replace")

    found = keys_in(read, " of the base branch")
    named = _allowed(found, git.prefix, tree.files)
    # A training names a skill by its path without links to folders.
    named |= {tree.place(path) for path in named}
    return Base(commit, settings_of(found), named, tree, git)


def _allowed(keys: Mapping[str, Any], prefix: str, files: Iterable[str]) -> frozenset[str]:
    """List the skill files of ``skillopt_propose_skills``, else of ``skillopt_skill``.

    If neither is set, it is the project's SKILL.md, unless there are several.
    """
    named = keys.get("propose_skills") or keys.get("skill") or ""
    listed = named.replace("\n", ",").split(",") if isinstance(named, str) else named
    paths = [name.strip().removeprefix("./") for name in listed]
    if any(paths):
        return frozenset(prefix + path for path in paths if path)
    ours = (name.removeprefix(prefix) for name in files if name.startswith(prefix))
    below = [path for path in map(PurePosixPath, ours) if path.name == SKILL_FILE]
    found = [path for path in below if is_searched(path)]
    return frozenset(f"{prefix}{p}" for p in found) if len(found) == 1 else frozenset()


def keys_in(read: Callable[[str], str | None], where: str = "") -> dict[str, Any]:
    """Read the ini keys, without ``skillopt_``, from the file that pytest would use.

    Args:
        read: returns the text of a file in the project's root directory, None if there is none.
        where: tells for an error where the files are.

    Raises:
        UserError: the file cannot be read, or has a key that is gone.
    """
    for name in CONFIG_FILES:
        text = read(name)
        if text is None:
            continue
        try:
            found = _from_toml(name, text) if name.endswith(".toml") else _from_ini(name, text)
        except (ValueError, TypeError, AttributeError, iniconfig.ParseError) as error:
            raise UserError(f"{name}{where} cannot be read: {error}") from None
        if found is not None:
            ours = {key: value for key, value in found.items() if key.startswith(_PREFIX)}
            keys = {key.removeprefix(_PREFIX): value for key, value in ours.items()}
            for gone in REMOVED.keys() & keys.keys():
                raise UserError(f"{name}{where}: {_PREFIX}{gone} no longer exists: {REMOVED[gone]}")
            return keys
    return {}


def settings_of(found: Mapping[str, Any]) -> Settings:
    """Make the settings of ini keys; raise UserError for a bad value."""
    try:
        return Settings.from_file(found)
    except pytest.UsageError as error:
        raise UserError(str(error)) from None


def _from_toml(name: str, text: str) -> dict[str, Any] | None:
    whole: dict[str, Any] = tomllib.loads(text)
    if name != "pyproject.toml":
        return dict(whole.get("pytest", {}))
    table = whole.get("tool", {}).get("pytest")
    return table and dict(table.get("ini_options", table))


def _from_ini(name: str, text: str) -> dict[str, Any] | None:
    parsed = iniconfig.IniConfig(name, data=text)
    section = "tool:pytest" if name == "setup.cfg" else "pytest"
    if section in parsed:
        return dict(parsed[section].items())
    return {} if name.endswith("pytest.ini") else None
