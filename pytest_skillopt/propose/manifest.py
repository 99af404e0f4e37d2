"""``.skillopt/proposal/``: what a training leaves for :mod:`pytest_skillopt.propose` to take up.

Layout::

    manifest.json          this module's :class:`Manifest`
    body.md report.html    the text of the request, the report for the artifact
    <name>/SKILL.md        the new skill
    <name>/skill.patch     the same as a patch against the base commit

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
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pytest_skillopt.skill.diff import unified
from pytest_skillopt.skill.document import Document
from pytest_skillopt.skill.files import SKILL_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_skillopt.propose.git import Facts
    from pytest_skillopt.run.result import Result, SkillResult, TaskRow

SCHEMA: Literal["skillopt-proposal/1"] = "skillopt-proposal/1"
MANIFEST, BODY, REPORT = "manifest.json", "body.md", "report.html"

_SETTINGS = ("gate", "metric", "rollouts", "final_rollouts", "seed", "search", "epochs")
"""The settings that a reviewer of the evidence asks about."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ObjectId = Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]
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


class Evidence(_Record):
    """What the verdict rests on."""

    final: list[TaskCounts] = Field(max_length=20_000)
    """The last comparison, of train and val."""
    from_search: Count = 0
    """Tasks of ``final`` whose rollouts before are those of the search; all others are fresh."""
    gate: list[TaskCounts] = Field(default_factory=list, max_length=20_000)
    """The comparison on val that accepted the last edit; empty where the gate was off."""


class SkillProposal(_Record):
    """One skill that a training bettered."""

    name: SkillName
    path: str = Field(min_length=1, max_length=1000)
    """Seen from the top of the repository, with forward slashes."""
    base_blob: ObjectId
    """Id in git of the file that the training started from."""
    base_version: Sha256
    version: Sha256
    verdict: Literal["accepted"]
    metric: Literal["hard", "soft", "mixed"] = "hard"
    """What the gate compared. The final comparison is of pass rates with all three."""
    evidence: Evidence


class Manifest(_Record):
    """``manifest.json``."""

    schema_: Literal["skillopt-proposal/1"] = Field(default=SCHEMA, alias="schema")
    run: str = Field(max_length=200)
    base_commit: ObjectId
    branch: str = Field(default="", max_length=250)
    """What was checked out when the training ran, ``""`` with a detached head."""
    simulated: bool = False
    """A simulated model took part."""
    models: dict[str, str] = Field(default_factory=dict, max_length=20)
    settings: dict[str, str] = Field(default_factory=dict, max_length=50)
    skills: list[SkillProposal] = Field(min_length=1, max_length=50)
    files: dict[str, Sha256]
    """Every other file of the proposal with its hash."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


def write_proposal(
    directory: Path,
    result: Result,
    skills: Sequence[tuple[str, bytes, bytes]],
    facts: Facts | None,
    body: str,
    report: Path | None,
    *,
    gates: Mapping[str, dict[str, Any]] | None = None,
) -> bool:
    """Replace the proposal in ``directory`` by that of a run, or remove it.

    Args:
        directory: usually ``.skillopt/proposal``.
        result: the run.
        skills: path under the root directory, bytes before, bytes after; those that the run did
            not accept are left out.
        facts: where the project stands in git (:func:`pytest_skillopt.propose.git.describe`).
        body: Markdown for the request.
        report: the HTML report, copied.
        gates: by path, the verdict of the gate on val that accepted the last edit, as JSON.

    Returns:
        Whether there is a proposal now. There is none when nothing was accepted, and none outside
        of git, where it could go nowhere.
    """
    rows = {row.path: row for row in result.skills if row.status == "accepted"}
    chosen = [(rows[path], before, after) for path, before, after in skills if path in rows]
    if not chosen or facts is None:
        _remove(directory)
        return False
    directory.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, so that the rename stays on one file system.
    fresh = Path(tempfile.mkdtemp(prefix=".proposal-", dir=directory.parent))
    try:
        files = {BODY: body.encode()} | ({REPORT: report.read_bytes()} if report else {})
        _fill(fresh, files, result, chosen, facts, gates or {})
        _remove(directory)
        fresh.rename(directory)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return True


def _fill(
    directory: Path,
    files: dict[str, bytes],
    result: Result,
    chosen: Sequence[tuple[SkillResult, bytes, bytes]],
    facts: Facts,
    gates: Mapping[str, dict[str, Any]],
) -> None:
    proposals: list[SkillProposal] = []
    for row, before, after in chosen:
        name = slug(row.name or unnamed(Path(row.path)))
        name = _unused(name, {proposal.name for proposal in proposals})
        proposal = SkillProposal(
            name=name,
            path=facts.prefix + row.path,
            base_blob=blob_id(before, like=facts.commit),
            base_version=sha256(before),
            version=sha256(after),
            verdict="accepted",
            metric=result.settings.get("metric", "hard"),
            evidence=Evidence(
                final=list(_final(row.tasks)),
                from_search=row.from_search,
                gate=list(_gate(gates.get(row.path, {}))),
            ),
        )
        proposals.append(proposal)
        files[f"{name}/SKILL.md"] = after
        old, new = Document.from_bytes(before), Document.from_bytes(after)
        files[f"{name}/skill.patch"] = unified(old, new, proposal.path).encode()
    manifest = Manifest(
        run=result.run,
        base_commit=facts.commit,
        branch=facts.branch,
        simulated=result.simulated,
        models=result.models,
        settings={k: str(result.settings[k]) for k in _SETTINGS if k in result.settings},
        skills=proposals,
        files={name: sha256(data) for name, data in files.items()},
    )
    files[MANIFEST] = manifest.model_dump_json(by_alias=True, indent=1).encode()
    for relative, data in files.items():
        target = directory / relative
        target.parent.mkdir(exist_ok=True)
        with target.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())


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
        )


def _gate(verdict: Mapping[str, Any]) -> Iterator[TaskCounts]:
    """Counts of a :class:`pytest_skillopt.gate.verdict.Verdict` in JSON."""
    for row in verdict["tasks"] if verdict.get("validated") else ():
        if row["incumbent_n"] and row["candidate_n"]:
            yield TaskCounts(
                task=row["task"],
                before_passed=row["incumbent_passed"],
                before_n=row["incumbent_n"],
                after_passed=row["candidate_passed"],
                after_n=row["candidate_n"],
            )


def blob_id(data: bytes, *, like: str) -> str:
    """Id that git gives to a file of these bytes, in the hash of the object id ``like``."""
    digest = hashlib.sha1 if len(like) == 40 else hashlib.sha256
    return digest(b"blob %d\0" % len(data) + data).hexdigest()


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
