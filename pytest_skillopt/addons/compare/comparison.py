"""Two versions of a skill: at a git revision, compared by a gate."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt import Document
from pytest_skillopt.addons.git import Clone, GitError
from pytest_skillopt.gate.data import TAPE, Verdict
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.run.result import SkillResult
from pytest_skillopt.search.outcome import comparison, cost_of, task_rows
from pytest_skillopt.search.samples import sample_of
from pytest_skillopt.skill.diff import unified
from pytest_skillopt.skill.document import NO_SKILL, SkillError
from pytest_skillopt.suite.rollouts import Rollout
from pytest_skillopt.suite.sampler import Stop, StopRun

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_skillopt import Gate
    from pytest_skillopt.addons.git import Entry
    from pytest_skillopt.gate.data import Draw, Sample
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.skill.files import Trained
    from pytest_skillopt.suite.rollouts import RolloutRequest

_SKILL_LIMIT = 10_000_000
NONE = "none"
"""Version name that stands for no skill at all."""


def only_skill(run: Run, does: str) -> str:
    """Return the path of the suite's only skill; ``does`` is the mode's verb for the error.

    Raises:
        pytest.UsageError: several skills.
    """
    if len(run.documents) != 1:
        raise pytest.UsageError(
            f"{run.mode.flag} {does} one skill, but these tasks use several "
            f"({', '.join(run.documents)}): select those of one with -k or a path"
        )
    return next(iter(run.documents))


def at_revision(
    root: Path, skill: str, ref: str, trained: Trained | None = None
) -> Document | None:
    """Return the skill at a git revision, None if it did not exist there; ``none``: no skill.

    ``trained`` are the files trained with the skill.

    Raises:
        pytest.UsageError: no git, no repository, no such revision, or a conflict in the skill.
    """
    if ref == NONE:
        return NO_SKILL
    try:
        git = Clone(root)
        commit = git.resolve(ref)
        if commit is None:
            hint = " (in a shallow clone, fetch it first)" if git.is_shallow() else ""
            if (root / ref).exists():
                hint = f"; {ref} is a path: write the revision before it"
            raise pytest.UsageError(f"there is no git revision {ref!r}{hint}")
        path = git.prefix + skill
        files = git.files(commit)
        if path not in files:
            return None
        document = Document.from_bytes(_checked_out(git, path, files[path]))
        for beside, entry in files.items() if trained else ():
            name = posixpath.relpath(beside, posixpath.dirname(path) or ".")
            if trained and entry.is_file and trained.includes(name):
                text = Document.from_bytes(_checked_out(git, beside, entry))
                document = document.with_file(name, text)
        return document
    except (GitError, SkillError) as error:
        raise pytest.UsageError(f"{skill} at {ref}: {error}") from error


def _checked_out(git: Clone, path: str, entry: Entry) -> bytes:
    """Read a file of a commit, with CRLF if those on disk are: ``core.autocrlf`` makes them so."""
    data = git.read(entry.id, limit=_SKILL_LIMIT)
    try:
        there = (git.directory / path).read_bytes()
    except OSError:
        return data
    crlf = b"\r" not in data and there.count(b"\n") == there.count(b"\r\n") > 0
    return data.replace(b"\n", b"\r\n") if crlf else data


def compared(
    run: Run,
    skill: str,
    gate: Gate,
    before: Document,
    after: Document,
    stored: Mapping[str, Sequence[tuple[bool, float]]] = {},
) -> SkillResult:
    """Let a gate decide between two versions of a skill; undecided if a cap is reached first.

    ``stored`` are, by task, (passed, score) of the first samples of ``before`` that the committed
    baseline has already measured.
    """
    run.probe()
    incumbent = run.sampler.add_version(skill, before.packed)
    candidate = run.sampler.add_version(skill, after.packed)
    versions = {"incumbent": incumbent, "candidate": candidate}
    rollouts: dict[str, dict[str, list[Rollout]]] = {"incumbent": {}, "candidate": {}}

    def take(draws: Sequence[Draw]) -> list[Sample]:
        requests = [
            run.sampler.request(draw.task, versions[draw.arm], draw.stream, draw.index)
            for draw in draws
        ]
        recalled = list(map(recall, draws, requests))
        fresh = [r for r, known in zip(requests, recalled, strict=True) if known is None]
        sampled = iter(run.sampler.take(fresh))
        taken = [known or next(sampled) for known in recalled]
        for draw, rollout in zip(draws, taken, strict=True):
            rollouts[draw.arm].setdefault(draw.task, []).append(rollout)
        return list(map(sample_of, draws, taken))

    def recall(draw: Draw, request: RolloutRequest) -> Rollout | None:
        known = stored.get(draw.task, ()) if draw.arm == "incumbent" else ()
        if draw.stream != TAPE or draw.index >= len(known):
            return None
        passed, score = known[draw.index]
        return Rollout(request, "passed" if passed else "failed", score=score, worker="baseline")

    try:
        verdict = run_gate(gate, take)
    except StopRun as stop:
        if stop.kind is not Stop.CAP:
            raise
        # Keep what was measured; samples that a cap prevented are not evidence.
        undecided = f"stopped before it was decided: {stop.reason}"
        verdict = Verdict("unmeasured", undecided, gate=getattr(gate, "name", type(gate).__name__))
    run.journal.write("verdict", {"candidate": candidate, **verdict.to_json()})
    old, new = rollouts["incumbent"], rollouts["candidate"]
    rows = task_rows(run.tasks_of(skill), old, new, verdict)
    # A gate may skip tasks: compare only those that were measured under both versions.
    both = [row for row in rows if row.before.n and row.after and row.after.n]
    return SkillResult(
        path=skill,
        name=after.name,
        before=before.version,
        after=after.version,
        status=verdict.decision,
        reason=verdict.reason,
        patch=unified(before, after, skill),
        suite=comparison(both or rows),
        verdict=verdict.to_json(),
        tasks=rows,
        cost=cost_of(old, new) if old and new else None,
    )
