"""A version of a skill: the texts of its SKILL.md and of what is trained with it, by name.

A name is a path relative to the skill's folder, with ``/``: ``SKILL.md`` (whatever the file is
called on disk), ``references/rules.md``, or ``../AGENTS.md`` for a document outside. One that
begins with ``/`` is a path in the project: there lies the SKILL.md of another skill, which agents
see in place of the one on disk; nobody edits or writes it.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Mapping
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from pytest_skillopt.skill.text import SkillError, Text
from pytest_skillopt.untrusted import parsed

if TYPE_CHECKING:
    from collections.abc import Iterator

SKILL_FILE = "SKILL.md"
_SEVERAL = b"\0skillopt-files/1\n"
"""Begin of the packed bytes of a version with several texts."""


class Version(Mapping[str, Text]):
    """Texts of a skill by name. Immutable; versions with equal texts are equal.

    Raises:
        ValueError: the text ``SKILL.md`` is missing.
    """

    def __init__(self, texts: Mapping[str, Text]) -> None:
        if SKILL_FILE not in texts:
            raise ValueError(f"a version needs a {SKILL_FILE}")
        self._texts = {name: texts[name] for name in sorted(texts, key=_order)}

    @classmethod
    def from_bytes(cls, data: bytes) -> Version:
        """Make a version of a SKILL.md only; SkillError as ``Text.from_bytes``."""
        return cls({SKILL_FILE: Text.from_bytes(data)})

    @classmethod
    def from_text(cls, text: str) -> Version:
        """Make a version of a SKILL.md only; SkillError as ``Text.from_text``."""
        return cls({SKILL_FILE: Text.from_text(text)})

    @classmethod
    def unpack(cls, packed: bytes) -> Version:
        """Read a version from its ``packed`` bytes."""
        if not packed.startswith(_SEVERAL):
            return cls({SKILL_FILE: Text(packed)})
        texts = parsed(packed[len(_SEVERAL) :])
        return cls({name: Text(text.encode()) for name, text in texts.items()})

    def __getitem__(self, name: str) -> Text:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __hash__(self) -> int:
        return hash(tuple(self._texts.items()))

    def __repr__(self) -> str:
        return f"Version({self._texts!r})"

    def __or__(self, texts: Mapping[str, Text]) -> Version:
        """Return this version with other texts."""
        return Version({**self._texts, **texts})

    @property
    def main(self) -> Text:
        """The SKILL.md."""
        return self._texts[SKILL_FILE]

    @property
    def files(self) -> dict[str, Text]:
        """The texts trained with the SKILL.md."""
        own = [name for name in self if not name.startswith("/")]
        return {name: self[name] for name in own if name != SKILL_FILE}

    @property
    def others(self) -> dict[str, Text]:
        """The SKILL.md of other skills, by path in the project."""
        return {name[1:]: self[name] for name in self if name.startswith("/")}

    def beside(self, others: Mapping[str, Text]) -> Version:
        """Return this version as agents see it with new ``others``."""
        return self | {f"/{path}": text for path, text in others.items()}

    @cached_property
    def packed(self) -> bytes:
        """All texts in one: the bytes of a single SKILL.md, else JSON after a mark with a NUL."""
        if len(self) == 1:
            return self.main.data
        texts = {name: text.text for name, text in self.items()}
        return _SEVERAL + json.dumps(texts, ensure_ascii=False).encode()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the packed bytes, in hexadecimal."""
        return hashlib.sha256(self.packed).hexdigest()

    @property
    def size(self) -> int:
        """Characters of all texts."""
        return sum(len(text.text) for text in self.values())


def _order(name: str) -> tuple[bool, bool, str]:
    return name != SKILL_FILE, name.startswith("/"), name


EMPTY = Text(b"")
"""A text that is not there."""
NO_SKILL = Version({SKILL_FILE: EMPTY})
"""Absence of a skill in a comparison: an empty text."""


def changes(before: Version, after: Version) -> dict[str, tuple[Text, Text]]:
    """Return the texts that differ, before and after, by name; one that is not there is empty."""
    pairs = {name: (before.get(name, EMPTY), after.get(name, EMPTY)) for name in before | after}
    return {name: (old, new) for name, (old, new) in pairs.items() if old != new}


def place_of(skill: str, name: str) -> str:
    """Return the path in the project of a text of the skill whose SKILL.md is at ``skill``."""
    place = skill if name == SKILL_FILE else posixpath.join(posixpath.dirname(skill), name)
    return posixpath.normpath(place)


def is_outside(name: str) -> bool:
    """Check if a trained file lies outside of the skill's folder, such as the project's AGENTS.md.

    Its path is normal, so that it has one name only.
    """
    return name.startswith("../") and posixpath.normpath(name) == name


def stays_inside(path: str) -> bool:
    """Check if a path is one inside of the skill's folder."""
    pure = PurePosixPath(path)
    return bool(pure.parts) and not (pure.is_absolute() or ".." in pure.parts or "\\" in path)


def check_inside(path: str) -> None:
    """Refuse (SkillError) a path that leaves the skill's folder."""
    if not stays_inside(path):
        raise SkillError(f"{path!r} is not a path inside of a skill's folder")
