"""``.skillopt/proposal/``: what a training leaves for :mod:`pytest_skillopt.propose` to take up.

Layout::

    manifest.json      this module's :class:`Manifest`
    body.md            the text of the request
    <name>/SKILL.md    the new skill
    <name>/...         the files that were trained with it, changed or not

The writer is trusted by nobody: whoever reads a proposal checks it with
:mod:`pytest_skillopt.propose.validate`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pytest_skillopt.gate.shorter import ShorterGate
from pytest_skillopt.propose.git import project_prefix
from pytest_skillopt.report.markdown import pull_request_body
from pytest_skillopt.skill.document import SKILL_FILE, Document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_skillopt.run.directory import Home
    from pytest_skillopt.run.result import Result, TaskRow

SCHEMA: Literal["skillopt-proposal/2"] = "skillopt-proposal/2"
MANIFEST, BODY = "manifest.json", "body.md"

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
SkillName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$")]
"""Lower-case letters, digits, inner hyphens: safe as a folder and as a part of a branch name."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TaskCounts(_Record):
    """One task under both versions: rollouts that passed, rollouts that were measured."""

    task: str = Field(max_length=2000)
    before_passed: Count
    before_n: Count
    after_passed: Count
    after_n: Count
    trigger: bool | None = None
    """Of a trigger task: whether the skill should be asked for."""


class Evidence(_Record):
    """What the verdict rests on."""

    final: list[TaskCounts] = Field(max_length=20_000)
    """The final comparison, of train and val."""
    from_search: Count = 0
    """Tasks of ``final`` whose rollouts before are those of the search; all others are fresh."""


class SkillProposal(_Record):
    """One skill that a training bettered."""

    name: SkillName
    path: str = Field(min_length=1, max_length=1000)
    """Seen from the top of the repository, with forward slashes."""
    base_version: Sha256
    """Of what the training started from, all its files (``Document.version``)."""
    version: Sha256
    files: list[Annotated[str, Field(max_length=500)]] = Field(default=[], max_length=100)
    """Paths of the trained files beside the SKILL.md, seen from its folder."""
    verdict: Literal["accepted"]
    shorter: bool = False
    """It says less and is credibly no worse, in the place of bettering the pass rate."""
    evidence: Evidence


class Manifest(_Record):
    """``manifest.json``."""

    schema_: Literal["skillopt-proposal/2"] = Field(default=SCHEMA, alias="schema")
    run: str = Field(max_length=200)
    simulated: bool = False
    """A simulated model took part."""
    skills: list[SkillProposal] = Field(min_length=1, max_length=50)

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


def leave_proposal(root: Path, home: Home, run: Path, result: Result) -> bool:
    """Replace the project's proposal by that of a run, or remove it when nothing was accepted.

    Whether there is a proposal now; never outside of git. ``root`` is the project's root directory,
    ``run`` that of the run, and the proposal goes to ``home``.

    Raises:
        OSError: a file cannot be read or written.
    """
    accepted = [row for row in result.skills if row.status == "accepted"]
    prefix = project_prefix(root) if accepted else None
    if prefix is None:
        _remove(home.proposal)
        return False
    files = {BODY: pull_request_body(result).encode()}
    proposals: list[SkillProposal] = []
    for row in accepted:
        name = _unused(slug(row.name or unnamed(Path(row.path))), {p.name for p in proposals})
        before, after = (
            Document.unpack((run / "skills" / f"{version}.md").read_bytes())
            for version in (row.before, row.after)
        )
        files |= {f"{name}/{file}": after.file(file).data for file in after.names}
        proposals.append(
            SkillProposal(
                name=name,
                path=prefix + row.path,
                base_version=before.version,
                version=after.version,
                files=[file for file, _ in after.files],
                verdict="accepted",
                shorter=(row.verdict or {}).get("gate") == ShorterGate.name,
                evidence=Evidence(final=list(_final(row.tasks)), from_search=row.from_search),
            )
        )
    manifest = Manifest(
        run=result.run,
        simulated=result.simulated,
        skills=proposals,
    )
    files[MANIFEST] = manifest.model_dump_json(by_alias=True, indent=1).encode()
    _replace(home.proposal, files)
    return True


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


def _final(tasks: Sequence[TaskRow]) -> Iterator[TaskCounts]:
    for row in tasks:
        if row.split == "test" or row.skipped or row.after is None:
            continue
        yield TaskCounts(
            task=row.id,
            before_passed=row.before.passed,
            before_n=row.before.n,
            after_passed=row.after.passed,
            after_n=row.after.n,
            trigger=row.trigger,
        )


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def unnamed(path: Path) -> str:
    """What a skill without a name is called: by its folder, or as any other file by its own."""
    return path.parent.name if path.name == SKILL_FILE else path.stem


def slug(name: str) -> str:
    """A skill's name as :data:`SkillName` allows it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:64].strip("-") or "skill"


def _unused(name: str, taken: set[str]) -> str:
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name[:58]}-{number}"
    return candidate


def _remove(directory: Path) -> None:
    if directory.is_symlink():
        directory.unlink()
    elif directory.exists():
        # Renamed first: a proposal is there whole or not at all.
        grave = Path(tempfile.mkdtemp(prefix=".proposal-", dir=directory.parent))
        directory.rename(grave / "old")
        shutil.rmtree(grave)
