"""A skill as it was: at a git revision, in a file, or as a version of an earlier run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.propose import ProposeError
from pytest_skillopt.propose.git import Clone
from pytest_skillopt.skill.document import NO_SKILL, Document, SkillError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_skillopt.run.directory import Home

_SKILL_LIMIT = 10_000_000
_SHORTEST_VERSION = 6
NONE = "none"
"""What a side without any skill is called."""


class RevisionError(Exception):
    """What was named is not there; the message says what was looked for."""


def at_revision(root: Path, skill: str, ref: str) -> Document | None:
    """The skill at a git revision; None where it did not exist there yet; no skill at ``none``.

    Raises:
        RevisionError: no git, no repository, no such revision, or a conflict in the skill.
    """
    if ref == NONE:
        return NO_SKILL
    try:
        git = Clone(root)
        _refuse_conflict(git, skill)
        commit = git.resolve(ref)
        if commit is None:
            hint = " (in a shallow clone, fetch it first)" if git.is_shallow() else ""
            path = root / ref
            if path.exists():
                hint = f"; {ref} is a path, so write --skillopt-check=REF before it"
            raise RevisionError(f"there is no git revision {ref!r}{hint}")
        entry = git.entry(commit, git.prefix + skill)
        return Document.from_bytes(git.read(entry.id, limit=_SKILL_LIMIT)) if entry else None
    except (ProposeError, SkillError) as error:
        raise RevisionError(f"{skill} at {ref}: {error}") from error


def _refuse_conflict(git: Clone, skill: str) -> None:
    if git.run("ls-files", "--unmerged", "-z", "--", git.prefix + skill):
        raise RevisionError(f"{skill} has merge conflicts in the index: resolve them first")


def is_staged_differently(root: Path, skill: str) -> bool:
    """Whether the index holds another version than the working tree, so that a commit would too."""
    try:
        git = Clone(root)
        where = git.prefix + skill
        staged = git.run("diff", "--cached", "--name-only", "-z", "--", where)
        return bool(staged and git.run("diff", "--name-only", "-z", "--", where))
    except ProposeError:
        return False


def named_skill(root: Path, home: Home, skill: str, name: str) -> Document:
    """What a user calls a skill: a file, a git revision, (part of) a version of a run, ``none``.

    Raises:
        RevisionError: it is none of them.
    """
    path = root / name
    if path.is_file():
        try:
            return Document.from_bytes(path.read_bytes())
        except SkillError as error:
            raise RevisionError(f"{name}: {error}") from error
    kept = _kept_versions(home, name)
    if len(kept) == 1:
        return Document.from_bytes(kept[0].read_bytes())
    if len(kept) > 1:
        raise RevisionError(f"several versions of runs begin with {name!r}: write more of it")
    try:
        document = at_revision(root, skill, name)
    except RevisionError as error:
        raise RevisionError(
            f"{name!r} is neither a file nor a version of a run in {home.runs}, and {error}"
        ) from error
    if document is None:
        raise RevisionError(f"{skill} did not exist at git revision {name!r}")
    return document


def _kept_versions(home: Home, name: str) -> list[Path]:
    """Files of that version in any run, one for each version."""
    plain = len(name) >= _SHORTEST_VERSION and all(c in "0123456789abcdef" for c in name)
    found = home.runs.glob(f"*/skills/{name}*.md") if plain else ()
    return list({path.name: path for path in found}.values())
