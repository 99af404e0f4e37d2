"""The files that are trained with a skill, and what may be written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from pytest_skillopt.skill.text import SkillError
from pytest_skillopt.skill.version import is_outside, stays_inside

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.version import Version

TEXTS = (".md", ".markdown", ".mdx", ".txt", ".rst", ".adoc")
"""Extensions of files that can be trained with a skill."""


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
        inside = stays_inside(name) and any(fnmatchcase(name, p) for p in self._wanted if p)
        return inside or name in self.outside

    def names(self, found: Mapping[str, str]) -> list[str]:
        """Return the names of the files that are trained with a skill.

        Args:
            found: files that belong to it: path without links by name, both relative to its folder.
                A link to another file of the folder is a second name of that, and left out.
        """
        first = [name for name, real in found.items() if name == real or real.startswith("../")]
        return [*filter(self.includes, first), *self.outside]

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
        raise SkillError(f"{name!r}: this name is not UTF-8, or cannot be shown; rename it")
    if PurePosixPath(name).suffix.lower() not in TEXTS:
        raise SkillError(f"{name}: only text documents are trained ({', '.join(TEXTS)})")


def check_names(version: Version, trained: Trained) -> None:
    """Refuse (SkillError) a version with a file that may not be written.

    Such a file is not a text document, or lies outside of the skill's folder and is not trained.

    A version may come from an untrusted cache.
    """
    for name in version:
        check_kind(name)
        if not stays_inside(name) and name not in trained.outside:
            raise SkillError(f"{name}: not written, it lies outside of the skill's folder")
