"""Compare two skills, each named by a file, a git revision, a version of a run, or ``none``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.addons.comparison import compared, only_skill
from pytest_skillopt.addons.revisions import RevisionError, at_revision
from pytest_skillopt.modes.measure import refined
from pytest_skillopt.run.directory import Home
from pytest_skillopt.search.extensions import configured_gate, gate_tasks
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.document import SKILL_FILE, Document, SkillError
from pytest_skillopt.skill.files import Trained

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_skillopt import Result
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run

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
        before, after = (
            named_skill(
                run.root, run.home, skill, name, run.documents[skill], Trained.of(run.settings)
            )
            for name in (first, second)
        )
    except RevisionError as error:
        raise pytest.UsageError(f"--skillopt-compare: {error}") from None
    if before.version == after.version:
        same = f"{first} and {second} are the same; --skillopt-aa compares a skill with itself"
        raise pytest.UsageError(f"--skillopt-compare: {same}")
    gate = configured_gate(run.settings, gate_tasks(run.tasks_of(skill)))
    result = compared(run, skill, gate, before, after)
    result = refined("compared", run, result, before, after)
    return run.result(result.status, result.reason, [result])


def named_skill(
    root: Path, home: Home, skill: str, name: str, now: Document, trained: Trained
) -> Document:
    """Return the skill that a user names: by file, git revision, version of a run, or ``none``.

    A version may be shortened. ``now`` is the skill on disk; a named file replaces its SKILL.md.

    Raises:
        RevisionError: the name is none of them, or is ambiguous.
    """
    path = root / name
    if path.is_file():
        try:
            return now.with_file(SKILL_FILE, Document.from_bytes(path.read_bytes()))
        except SkillError as error:
            raise RevisionError(f"{name}: {error}") from error
    kept = _kept_versions(home, name)
    if len(kept) == 1:
        return Document.unpack(kept[0].read_bytes())
    if len(kept) > 1:
        raise RevisionError(f"several versions of runs begin with {name!r}: write more characters")
    try:
        document = at_revision(root, skill, name, trained)
    except RevisionError as error:
        raise _nothing_so_called(home, name, error) from error
    if document is None:
        raise RevisionError(f"{skill} did not exist at git revision {name!r}")
    return document


def check_names(config: pytest.Config) -> None:
    """Refuse a name under which ``named_skill`` finds no skill, whichever it is; UsageError."""
    root = config.rootpath
    home = Home(root / Settings.from_config(config).dir)
    for name in config.option.skillopt_compare:
        if not (root / name).is_file() and not _kept_versions(home, name):
            try:
                at_revision(root, "the project", name)  # no file is called so
            except RevisionError as error:
                raise pytest.UsageError(str(_nothing_so_called(home, name, error))) from None


def _nothing_so_called(home: Home, name: str, error: RevisionError) -> RevisionError:
    words = f"{name!r} is neither a file nor a version of a run in {home.runs}, and {error}"
    return RevisionError(words)


def _kept_versions(home: Home, name: str) -> list[Path]:
    plain = len(name) >= _SHORTEST_VERSION and all(c in "0123456789abcdef" for c in name)
    found = home.runs.glob(f"*/skills/{name}*.md") if plain else ()
    return list({path.name: path for path in found}.values())
