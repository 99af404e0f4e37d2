"""Two versions of a skill: at a git revision, compared by a gate."""

from __future__ import annotations

import contextlib
import difflib
import os
import posixpath
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt import Document
from pytest_skillopt.gate.data import TAPE, Verdict
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.git import Clone, GitError, Tree
from pytest_skillopt.modes.measure import of_versions
from pytest_skillopt.rollouts.rollout import Rollout
from pytest_skillopt.rollouts.sampler import Stop, StopRun
from pytest_skillopt.search.outcome import comparison, cost_of, task_rows
from pytest_skillopt.search.samples import sample_of
from pytest_skillopt.skill.document import NO_SKILL, SkillError
from pytest_skillopt.skill.files import read_bounded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_skillopt import Gate
    from pytest_skillopt.gate.data import Draw, Sample
    from pytest_skillopt.rollouts.rollout import RolloutRequest
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult
    from pytest_skillopt.skill.files import Trained

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


class Revision:
    """A git revision of the project.

    Raises:
        pytest.UsageError: no git, no repository, or no such revision.
    """

    def __init__(self, root: Path, ref: str) -> None:
        self._root, self._ref = root, ref
        with self._explained("the project"):
            self._git = Clone(root)
            commit = self._git.resolve(ref)
            if commit is None:
                hint = " (in a shallow clone, fetch it first)" if self._git.is_shallow() else ""
                if (root / ref).exists():
                    hint = f"; {ref} is a path: write the revision before it"
                raise pytest.UsageError(f"there is no git revision {ref!r}{hint}")
            self._tree = Tree(self._git, commit)

    def skill(self, skill: str, trained: Trained | None = None) -> Document | None:
        """Return a skill with the files ``trained`` with it, None if it did not exist.

        Raises:
            pytest.UsageError: a submodule holds it, or it cannot be read.
        """
        with self._explained(skill):
            document = self._document(skill)
            if document is None:
                return None
            folder = self._real(posixpath.dirname(skill))
            assert folder is not None, "it holds the skill"
            for name, real in self._tree.beneath(folder) if trained else ():
                inside = real.startswith(f"{folder}/") and real != f"{folder}/{name}"
                if trained and trained.includes(name) and not inside and self._is_ours(real):
                    text = Document.from_bytes(self._checked_out(real))
                    document = document.with_file(name, text)
            for name in trained.outside if trained else ():
                beside = self._document(posixpath.join(posixpath.dirname(skill), name))
                document = document.with_file(name, beside) if beside else document
            return document

    def moved(self, skill: str, now: Document, trained: Trained) -> tuple[str, Document] | None:
        """Return the former path of a skill that had another place, and its version, if any.

        A link by which the skill is reached may have pointed to another one. Else it is a skill
        whose file has gone since: the one with the same name, or with the most similar text.
        """
        return self._linked(skill, trained) or self._gone(skill, now, trained)

    def _linked(self, skill: str, trained: Trained) -> tuple[str, Document] | None:
        real = (self._root / skill).resolve()
        for path, entry in self._tree.files.items():
            if not (entry.is_link and self._is_ours(path)):
                continue
            place = path.removeprefix(self._git.prefix)
            with contextlib.suppress(ValueError, OSError, RuntimeError, pytest.UsageError):
                rest = real.relative_to((self._root / place).resolve())
                then = self.skill(posixpath.normpath(f"{place}/{rest.as_posix()}"), trained)
                if then:
                    return place, then
        return None

    def _gone(self, skill: str, now: Document, trained: Trained) -> tuple[str, Document] | None:
        found = []
        start = self._git.prefix
        for path in self._tree.files:
            place = path.removeprefix(start)
            kept = os.path.realpath(self._root / place) == str(self._root.resolve() / place)
            if posixpath.basename(place) != posixpath.basename(skill) or not self._is_ours(path):
                continue
            if not (kept and (self._root / place).exists()):
                with contextlib.suppress(pytest.UsageError):
                    then = self.skill(place, trained)
                    found += [(place, then)] if then else []
        same_name = [(place, then) for place, then in found if now.name and then.name == now.name]

        def similarity(one: tuple[str, Document]) -> float:
            return difflib.SequenceMatcher(None, one[1].text, now.text).quick_ratio()

        return max(same_name or found, key=similarity, default=None)

    def check_known(self, skill: str) -> None:
        """Raise UsageError if no revision of this repository can hold a skill that is on disk."""
        with self._explained(skill):
            path = (self._root / skill).resolve()
            place = Clone(path.parent).directory
            if place != self._git.directory:
                raise GitError(f"it lies in another repository, {place}: run the check in that one")
            if self._git.ignores(path):
                raise GitError("git ignores it, so that no revision holds it: remove it there")

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a file of the project as it was, None if there was none.

        Raises:
            pytest.UsageError: it has more than ``limit`` bytes.
        """
        with self._explained(name):
            real = self._real(name)
            entry = self._tree.files.get(real) if real is not None else None
            return self._git.read(entry.id, limit=limit) if entry else None

    def _real(self, path: str) -> str | None:
        real = self._tree.real(posixpath.normpath(self._git.prefix + path))
        return real if real is not None and self._is_ours(f"{real}/") else None

    def _is_ours(self, path: str) -> bool:
        return path.startswith(self._git.prefix)

    def _document(self, name: str) -> Document | None:
        real = self._real(name)
        if real is None or real not in self._tree.files:
            return None
        return Document.from_bytes(self._checked_out(real))

    def _checked_out(self, path: str) -> bytes:
        """Read a file, with CRLF if that on disk has it: ``core.autocrlf`` makes it so."""
        data = self._git.read(self._tree.files[path].id, limit=_SKILL_LIMIT)
        try:
            there = read_bounded(self._git.directory / path, _SKILL_LIMIT)
        except (OSError, SkillError):
            return data
        crlf = b"\r" not in data and there.count(b"\n") == there.count(b"\r\n") > 0
        return data.replace(b"\n", b"\r\n") if crlf else data

    @contextlib.contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except (GitError, SkillError) as error:
            raise pytest.UsageError(f"{name} at {self._ref}: {error}") from error


def at_revision(
    root: Path, skill: str, ref: str, trained: Trained | None = None
) -> Document | None:
    """Return the skill at a git revision, None if it did not exist there; ``none``: no skill.

    ``trained`` are the files trained with the skill.

    Raises:
        pytest.UsageError: as ``Revision`` and its ``skill``.
    """
    return NO_SKILL if ref == NONE else Revision(root, ref).skill(skill, trained)


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
    return of_versions(
        run,
        skill,
        before,
        after,
        status=verdict.decision,
        reason=verdict.reason,
        suite=comparison(both or rows),
        verdict=verdict.to_json(),
        tasks=rows,
        cost=cost_of(old, new) if old and new else None,
    )
