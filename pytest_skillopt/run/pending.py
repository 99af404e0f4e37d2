"""Writing a version of several files: what a kill leaves half done, the next run finishes.

Before the first file is moved into place, the version that is written lies in ``.skillopt``. It has
passed the final comparison, so that to finish is right, as long as nobody has changed a file.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_skillopt.run.directory import replace_file
from pytest_skillopt.skill.document import SKILL_FILE, Document, SkillError
from pytest_skillopt.skill.files import write_version

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from pytest_skillopt.run.directory import Home


def write_skill(root: Path, home: Home, skill: str, before: Document, after: Document) -> None:
    """Write a version of a skill, all its files or none.

    Args:
        skill: path of the SKILL.md, relative to ``root``.

    Raises:
        SkillError: as ``write_version``; nothing was written.
    """
    note = home.path / f"writing-{after.version[:16]}.json"
    versions = [version.packed.decode() for version in (before, after)]
    try:
        replace_file(note, json.dumps([skill, *versions]).encode())
    except OSError as error:
        raise SkillError(f"{note}: cannot be written ({error.strerror})") from None
    try:
        write_version(root / skill, before, after)
    finally:
        note.unlink(missing_ok=True)


def finish_writing(root: Path, home: Home, skills: Container[str]) -> Iterator[str]:
    """Finish what killed runs have begun to write; what is to be said about it.

    Args:
        skills: paths as in ``write_skill``. Whatever a note says, no other file is written:
            ``.skillopt`` may come from a cache.
    """
    for note in sorted(home.path.glob("writing-*.json")):
        try:
            skill, *versions = json.loads(note.read_text(encoding="utf-8"))
            if skill not in skills:
                continue
            before, after = (Document.unpack(version.encode()) for version in versions)
            write_version(root / skill, _half_written(root / skill, before, after), after)
            yield f"{skill}: a run that was killed while it wrote the skill has been finished"
        except (SkillError, OSError, ValueError) as error:
            yield f"{note.name}: a skill stays half written, see git diff: {error}"
        note.unlink(missing_ok=True)


def _half_written(path: Path, before: Document, after: Document) -> Document:
    """``before``, with the files that hold what ``after`` says already; removes scratch files."""
    for name in after.names:
        file = path.resolve() if name == SKILL_FILE else path.parent / name
        for stray in file.parent.glob(f".{file.name}.*.tmp"):
            stray.unlink()
        if file.exists() and file.read_bytes() == after.file(name).data:
            before = before.with_file(name, after.file(name))
    return before
