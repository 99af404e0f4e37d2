"""``.skillopt/proposal/``: what a training leaves for ``pytest-skillopt propose`` to take up.

``result.json`` is the run's result without its transcripts, ``<name>/`` holds each bettered skill
with the files that were trained with it. The writer is trusted by nobody: whoever reads a proposal
checks it with :mod:`pytest_skillopt.propose.validate`.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.propose.git import project_prefix
from pytest_skillopt.skill.document import SKILL_FILE, Document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt.run.directory import Home
    from pytest_skillopt.run.result import Arm, Result, SkillResult

RESULT = "result.json"


def leave_proposal(root: Path, home: Home, run: Path, result: Result) -> bool:
    """Replace the project's proposal by that of a run, or remove it when nothing was accepted.

    Whether there is a proposal now; never outside of git. ``root`` is the project's root directory,
    ``run`` that of the run, and the proposal goes to ``home``.

    Raises:
        OSError: a file cannot be read or written.
    """
    accepted = proposed(result)
    if not accepted or project_prefix(root) is None:
        _remove(home.proposal)
        return False
    files = {RESULT: _without_transcripts(result).dump().encode("utf-8", "backslashreplace")}
    for name, row in accepted.items():
        after = Document.unpack((run / "skills" / f"{row.after}.md").read_bytes())
        files |= {f"{name}/{file}": after.file(file).data for file in after.names}
    _replace(home.proposal, files)
    return True


def proposed(result: Result) -> dict[str, SkillResult]:
    """The skills that a training bettered, by a name of their own: lower-case letters, digits and
    inner hyphens, safe as a folder and as a part of a branch name."""
    found: dict[str, SkillResult] = {}
    for row in result.skills:
        if row.status == "accepted":
            name = slug(row.name or unnamed(Path(row.path)))
            number, own = 1, name
            while own in found:
                number += 1
                own = f"{name[:58]}-{number}"
            found[own] = row
    return found


def unnamed(path: Path) -> str:
    """What a skill without a name is called: by its folder, or as any other file by its own."""
    return path.parent.name if path.name == SKILL_FILE else path.stem


def slug(name: str) -> str:
    """A text of at most 64 lower-case letters, digits and inner hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:64].strip("-") or "skill"


def _without_transcripts(result: Result) -> Result:
    def bare(arm: Arm | None) -> Arm | None:
        return arm and arm.model_copy(update={"sample": None})

    skills = []
    for row in result.skills:
        tasks = [
            task.model_copy(update={"before": bare(task.before), "after": bare(task.after)})
            for task in row.tasks
        ]
        skills.append(row.model_copy(update={"tasks": tasks}))
    return result.model_copy(update={"skills": skills})


def _replace(directory: Path, files: Mapping[str, bytes]) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, so that the rename stays on one file system.
    fresh = Path(tempfile.mkdtemp(prefix=".proposal-", dir=directory.parent))
    try:
        for relative, data in files.items():
            target = fresh / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        _remove(directory)
        fresh.rename(directory)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def _remove(directory: Path) -> None:
    if directory.is_symlink():
        directory.unlink()
    elif directory.exists():
        # Renamed first: a proposal is there whole or not at all.
        grave = Path(tempfile.mkdtemp(prefix=".proposal-", dir=directory.parent))
        directory.rename(grave / "old")
        shutil.rmtree(grave)
