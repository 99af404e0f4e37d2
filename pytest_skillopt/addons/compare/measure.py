"""Compare two skills, each named by a file, a git revision, a version of a run, or ``none``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.addons.comparison import compared, only_skill
from pytest_skillopt.addons.revisions import at_revision
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
        before, after = (_named(run, skill, name) for name in (first, second))
        if before.version == after.version:
            same = f"{first} and {second} are the same; --skillopt-aa compares a skill with itself"
            raise pytest.UsageError(same)
    except pytest.UsageError as error:
        raise pytest.UsageError(f"--skillopt-compare: {error}") from None
    gate = configured_gate(run.settings, gate_tasks(run.tasks_of(skill)))
    result = compared(run, skill, gate, before, after)
    result = refined("compared", run, result, before, after)
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
            new = Document.from_bytes(path.read_bytes())
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
