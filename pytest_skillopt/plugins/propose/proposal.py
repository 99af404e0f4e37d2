"""Write ``.skillopt/proposal/``, the input of ``pytest-skillopt propose``, after a training.

``result.json`` is the run's result without its transcripts, ``<name>/`` holds each improved skill
with the files that were trained with it. A proposal is not trusted: every reader checks it with
:mod:`pytest_skillopt.plugins.propose.validate`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.rollouts.folders import TemporaryFolder
from pytest_skillopt.run.directory import PRIVATE, RESULT, replace_file
from pytest_skillopt.skill.find import slug, unnamed
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt.run.directory import Home
    from pytest_skillopt.run.result import Result, SkillResult

FOLDER = "proposal"
"""Name of the proposal's folder in ``.skillopt``."""
UP = "~up/"
"""Folder of a proposal that stands for ``../`` in the path of a file."""
_ARMS = {"before": {"sample"}, "after": {"sample"}}
_TRANSCRIPTS: Any = {"skills": {"__all__": {"tasks": {"__all__": _ARMS}}}}


def write_proposal(home: Home, run: Path, result: Result) -> None:
    """Replace the project's proposal by that of a run, or remove it if nothing was accepted.

    ``run`` is the run's directory; the proposal is written to ``home``.

    Raises:
        OSError: a file cannot be read or written.
    """
    accepted = improved_skills(result)
    files = {RESULT: result.dump(_TRANSCRIPTS).encode()} if accepted else {}
    for name, row in accepted.items():
        after = Version.unpack((run / "skills" / f"{row.after}.md").read_bytes())
        for file, text in after.items():
            files[f"{name}/{file.replace('../', UP)}"] = text.data
    folder = home.path / FOLDER
    if files or os.path.lexists(folder):
        _replace(folder, files)


def improved_skills(result: Result) -> dict[str, SkillResult]:
    """Return the improved skills, by unique names.

    A name has lower-case letters, digits and inner hyphens: it is safe in paths and branch names.
    """
    found: dict[str, SkillResult] = {}
    for row in result.skills:
        if row.status == "accepted":
            name = slug(row.name or unnamed(Path(row.path)))
            number = 1
            own = name
            while own in found:
                number += 1
                own = f"{name[:58]}-{number}"
            found[own] = row
    return found


def _replace(directory: Path, files: Mapping[str, bytes]) -> None:
    """Replace a directory by one with these files, readable only by their owner; remove it if none.

    It is renamed into place, so that it is never incomplete.
    """
    with TemporaryFolder(".proposal-", directory.parent) as scratch:
        (scratch / "new").mkdir(mode=PRIVATE)
        for name, data in files.items():
            target = scratch / "new" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_file(target, data)
        if os.path.lexists(directory):
            directory.rename(scratch / "old")
        if files:
            (scratch / "new").rename(directory)
