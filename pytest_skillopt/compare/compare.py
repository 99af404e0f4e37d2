"""Compare two skills, each named by a file, a git revision, a version of a run, or ``none``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.compare.comparison import at_revision, compared, only_skill
from pytest_skillopt.rollouts.rollout import Rollout
from pytest_skillopt.run.directory import JOURNAL, Home, mode_of
from pytest_skillopt.run.journal import entries_of
from pytest_skillopt.search.extensions import configured_gate, gate_tasks
from pytest_skillopt.search.outcome import arm_of, suite_rate
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.document import NO_SKILL, SKILL_FILE, Document, SkillError
from pytest_skillopt.skill.files import MAX_SKILL_BYTES, Trained, read_bounded

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_skillopt import Result
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Arm, SkillResult

_SHORTEST_VERSION = 6


def compare(run: Run, display: Display) -> Result:
    """Let the gate decide between two versions of the suite's only skill.

    Raises:
        pytest.UsageError: several skills, an unknown version, or twice the same one.
    """
    skill = only_skill(run, "compares")
    display.begin("comparison")
    first, second = run.mode.argument
    try:
        before, after = (_named(run, skill, name) for name in (first, second))
        if before.version == after.version:
            same = f"{first} and {second} are the same; --skillopt-aa compares a skill with itself"
            raise pytest.UsageError(same)
    except pytest.UsageError as error:
        raise pytest.UsageError(f"--skillopt-compare: {error}") from None
    gate = configured_gate(run.settings, gate_tasks(run.tasks_of(skill)))
    result = compared(run, skill, gate, before, after)
    return run.result(result.status, result.reason, [result])


def _named(run: Run, skill: str, name: str) -> Document:
    """Return the skill that a user names: by file, git revision, version of a run, or ``none``.

    A version may be shortened; a named file replaces the SKILL.md on disk.

    Raises:
        pytest.UsageError: the name is none of them, or is ambiguous.
    """
    path = run.root / name
    if path.is_file():
        try:
            new = Document.from_bytes(read_bounded(path, MAX_SKILL_BYTES))
            return run.documents[skill].with_file(SKILL_FILE, new)
        except SkillError as error:
            raise pytest.UsageError(f"{name}: {error}") from error
    kept = _kept_versions(run.home, name)
    if len(kept) == 1:
        return Document.unpack(kept[0].read_bytes())
    if kept:
        said = f"several versions of runs begin with {name!r}: write more characters"
        raise pytest.UsageError(said)
    document = _at_revision(run.root, run.home, skill, name, Trained.of(run.settings))
    if document is None:
        raise pytest.UsageError(f"{skill} did not exist at git revision {name!r}")
    return document


def check_names(config: pytest.Config) -> None:
    """Refuse a name under which ``compare`` finds no skill, whichever it is; UsageError."""
    root = config.rootpath
    home = Home(root / Settings.from_config(config).dir)
    for name in config.option.skillopt_compare:
        if not (root / name).is_file() and not _kept_versions(home, name):
            _at_revision(root, home, "the project", name)  # no file is called so


def _at_revision(
    root: Path, home: Home, skill: str, name: str, trained: Trained | None = None
) -> Document | None:
    try:
        return at_revision(root, skill, name, trained)
    except pytest.UsageError as error:
        words = f"{name!r} is neither a file nor a version of a run in {home.runs}, and {error}"
        raise pytest.UsageError(words) from None


def _kept_versions(home: Home, name: str) -> list[Path]:
    plain = len(name) >= _SHORTEST_VERSION and all(c in "0123456789abcdef" for c in name)
    found = home.runs.glob(f"*/skills/{name}*.md") if plain else ()
    return list({path.name: path for path in found}.values())


def with_none(run: Run, result: SkillResult) -> SkillResult:
    """Add the measurements without any skill to the result of a training."""
    none, measured_by = _without_skill(run, result.path)
    rows = [row.model_copy(update={"none": none.get(row.id)}) for row in result.tasks]
    counts = [(row.none.passed, row.none.n) for row in rows if row.split != "test" and row.none]
    whole = suite_rate(counts)
    if whole and result.suite and whole.tasks < result.suite.before.tasks:
        whole = None
    added = {"tasks": rows, "none": whole, "none_from": measured_by}
    return result.model_copy(update=added)


def _without_skill(run: Run, skill: str) -> tuple[dict[str, Arm], str]:
    """Return the latest run that compared with ``none``: its results by task, and its name."""
    sources = {task.id: task.source for task in run.tasks_of(skill)}
    same = {"skill": skill, "version": NO_SKILL.version, "model": run.fingerprint}
    for name in reversed(run.home.run_names()):
        if mode_of(run.home.runs / name) == "train":
            continue
        found: dict[str, list[Rollout]] = {}
        try:
            for data in entries_of(run.home.runs / name / JOURNAL, "rollout"):
                asked = data["request"]
                if same.items() <= asked.items() and sources.get(asked["task"]) == asked["source"]:
                    found.setdefault(asked["task"], []).append(Rollout.from_json(data))
        except (OSError, KeyError, TypeError, AttributeError):
            continue  # a journal in the form of another version of the package
        if found:
            return {task: arm_of(rollouts) for task, rollouts in found.items()}, name
    return {}, ""
