"""Skills at a git revision."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt import Document
from pytest_skillopt.addons.git import Clone, GitError
from pytest_skillopt.errors import UserError
from pytest_skillopt.skill.document import NO_SKILL, SkillError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_skillopt.run.directory import Home
    from pytest_skillopt.skill.files import Trained

_SKILL_LIMIT = 10_000_000
NONE = "none"
"""Version name that stands for no skill at all."""


def version_of_run(home: Home, run: str, version: str) -> Document:
    """Read a version of a skill that a run has stored.

    Raises:
        UserError: it is missing, or its content is not what its name says.
    """
    path = home.runs / run / "skills" / f"{version}.md"
    try:
        found = Document.unpack(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if found.version != version:
        raise UserError(f"{path}: the content does not have this SHA-256; nothing was written")
    return found


def at_revision(
    root: Path, skill: str, ref: str, trained: Trained | None = None
) -> Document | None:
    """Return the skill at a git revision, None if it did not exist there; ``none``: no skill.

    ``trained`` are the files trained with the skill.

    Raises:
        pytest.UsageError: no git, no repository, no such revision, or a conflict in the skill.
    """
    if ref == NONE:
        return NO_SKILL
    try:
        git = Clone(root)
        commit = git.resolve(ref)
        if commit is None:
            hint = " (in a shallow clone, fetch it first)" if git.is_shallow() else ""
            if (root / ref).exists():
                hint = f"; {ref} is a path: write the revision before it"
            raise pytest.UsageError(f"there is no git revision {ref!r}{hint}")
        path = git.prefix + skill
        files = git.files(commit)
        if path not in files:
            return None
        document = Document.from_bytes(git.read(files[path].id, limit=_SKILL_LIMIT))
        for beside, entry in files.items() if trained else ():
            name = posixpath.relpath(beside, posixpath.dirname(path) or ".")
            if trained and entry.is_file and trained.includes(name):
                text = Document.from_bytes(git.read(entry.id, limit=_SKILL_LIMIT))
                document = document.with_file(name, text)
        return document
    except (GitError, SkillError) as error:
        raise pytest.UsageError(f"{skill} at {ref}: {error}") from error
