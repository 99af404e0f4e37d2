"""Write a version of several files so that the next run can finish it after a kill.

Before the first file is replaced, the new version is stored in ``.skillopt``. It has passed the
final comparison, so finishing is right unless a file has been changed.
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
        root: the project's root directory.
        home: its directory ``.skillopt``.
        skill: path of the SKILL.md, relative to ``root``.
        before: the version on disk.
        after: the new version.

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
    """Finish the writes of killed runs; yield notes about them.

    Args:
        root: the project's root directory.
        home: its directory ``.skillopt``, which may come from an untrusted cache.
        skills: paths as in ``write_skill``; no other skill is written.
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
    """Return ``before`` with the files that equal ``after`` already; remove temporary files."""
    for name in after.names:
        file = path.resolve() if name == SKILL_FILE else path.parent / name
        for stray in file.parent.glob(f".{file.name}.*.tmp"):
            stray.unlink()
        if file.exists() and file.read_bytes() == after.file(name).data:
            before = before.with_file(name, after.file(name))
    return before
