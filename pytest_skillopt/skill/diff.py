"""Differences between two versions: a patch for ``git apply``, hunks, added text.

Lines end only at LF, as in git: a carriage return is part of the line, and the patch is exact for
every style of line endings. A patch must be written to disk as UTF-8 with ``newline=""``.
"""

from __future__ import annotations

import difflib
import os
import re
from operator import eq
from pathlib import PurePath
from typing import TYPE_CHECKING

from pytest_skillopt.skill.text import to_lf
from pytest_skillopt.skill.version import SKILL_FILE, changes, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_skillopt.skill.version import Version

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_NO_NEWLINE = "\\ No newline at end of file\n"


class _Lines(difflib.SequenceMatcher[str]):
    """Matches lines; also those that a long text repeats, unlike ``difflib.unified_diff``."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__(None, old, new, autojunk=False)
        self._old = old
        self._new = new

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        """Match what both begin or end with first.

        The longest match takes the square of a line's repetitions: minutes for 6,000.
        """
        old = self._old[alo:ahi]
        new = self._new[blo:bhi]
        if first := _shared(old, new):
            return difflib.Match(alo, blo, first)
        if last := _shared(old[::-1], new[::-1]):
            return difflib.Match(alo + len(old) - last, blo + len(new) - last, last)
        return super().find_longest_match(alo, ahi, blo, bhi)


def _shared(old: Sequence[str], new: Sequence[str]) -> int:
    """Count the lines with which both begin."""
    return [*map(eq, old, new), False].index(False)


def unified(
    before: Version, after: Version, path: str, places: Mapping[str, str] | None = None
) -> str:
    """Make a unified diff; empty if the versions are equal.

    ``path`` is that of the SKILL.md, relative to the root of the repository, with ``/``, and
    ``places`` those of its files, by their names, if they do not lie beside it: a patch names the
    file that a link leads to, since a link cannot be patched.
    """
    parts: list[str] = []
    for name, (was, is_now) in changes(before, after).items():
        where = (places or {}).get(name, place_of(path, name))
        old = _file_name(f"a/{where}")
        new = _file_name(f"b/{where}")
        if name not in before:
            parts.append(f"diff --git {old} {new}\nnew file mode 100644\n")
            old = "/dev/null"
        if name not in after:
            parts.append(f"diff --git {old} {new}\ndeleted file mode 100644\n")
            new = "/dev/null"
        about = "" if name == SKILL_FILE else f" {name}"
        parts += [f"--- {old}\n+++ {new}\n", *_hunks(was.text, is_now.text, about)]
    return "".join(parts)


def _hunks(before: str, after: str, about: str) -> Iterator[str]:
    """Yield the hunks of a file with three lines of context, ``about`` at their heads."""
    old = _LINE.findall(before)
    new = _LINE.findall(after)
    for group in _Lines(old, new).get_grouped_opcodes(3):
        yield _hunk(old, new, group, about)


def added_blocks(before: str, after: str) -> list[str]:
    """List runs of adjacent added or changed lines, with LF; a changed line counts as a whole."""
    old = to_lf(before).split("\n")
    new = to_lf(after).split("\n")
    opcodes = _Lines(old, new).get_opcodes()
    blocks = [
        "\n".join(new[j1:j2]) for tag, _, _, j1, j2 in opcodes if tag in ("insert", "replace")
    ]
    return [block for block in blocks if block.strip()]


def _hunk(
    old: list[str], new: list[str], group: Sequence[tuple[str, int, int, int, int]], about: str
) -> str:
    lines: list[str] = []
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            lines += [f" {line}" for line in old[i1:i2]]
        else:
            lines += [f"-{line}" for line in old[i1:i2]] + [f"+{line}" for line in new[j1:j2]]
    first = group[0]
    last = group[-1]
    head = f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@{about}\n"
    ended = (x if x.endswith("\n") else f"{x}\n{_NO_NEWLINE}" for x in lines)
    return "".join([head, *ended])


def _range(start: int, stop: int) -> str:
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def _file_name(name: str) -> str:
    """Quote a name as git does; a tab ends a name that holds a space."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    escaped = re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\{ord(match[0]):03o}", escaped)
    return f'"{escaped}"' if escaped != name else name + "\t" * (" " in name)


def patch_of(before: Version, after: Version, skill: str, root: Path) -> str:
    """Return the change of a skill in a project as a patch; empty if there is none."""
    top = root.resolve()
    places: dict[str, str] = {}
    for name in before | after:
        place = PurePath(os.path.realpath(root / place_of(skill, name)))
        if place.is_relative_to(top):
            places[name] = place.relative_to(top).as_posix()
    return unified(before, after, skill, places)
