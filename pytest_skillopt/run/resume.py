"""Whether a run on disk is the one that is asked for, so that its samples may be used."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from pytest_skillopt.run.directory import RunError
from pytest_skillopt.skill.document import Document

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_skillopt.mode import Mode
    from pytest_skillopt.model.types import Role
    from pytest_skillopt.run.directory import RunDirectory
    from pytest_skillopt.run.journal import Journal
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.tasks import SkillTask

_FREE = frozenset(
    {
        "lanes",
        "timeout",
        "max_attempts",
        "dir",
        "cache",
        "prices",
        "requests_per_minute",
        "tokens_per_minute",
        "max_in_flight",
        "request_timeout",
        "api_key_env",
        "max_rollouts",
        "max_calls",
        "max_tokens",
        "max_cost",
        "max_time",
        "model",
        "target",
        "optimizer",
        "judge",
        "base_url",
    }
)
"""Settings that may differ when a run is continued, for they change no sample. All but the caps
change no decision either; a higher cap lets the search go on, and may let it go another way, but it
never adds samples to a final comparison that was begun. Models are compared by fingerprints."""


def describe_run(
    mode: Mode,
    settings: Settings,
    tasks: Sequence[SkillTask],
    documents: Mapping[str, Document],
    fingerprints: Mapping[Role, str],
) -> dict[str, Any]:
    """What must be the same for a run to be continued."""
    decisive = {k: v for k, v in settings.to_json().items() if k not in _FREE}
    return {
        "mode": mode.name,
        "settings": decisive,
        "suite": _digest(f"{task.id} {task.source} {task.split}" for task in tasks),
        "skills": {skill: document.version for skill, document in documents.items()},
        "models": dict(fingerprints),
    }


def check_same_run(journal: Journal, description: dict[str, Any]) -> None:
    """Enter the description into a new journal, or compare it with that of an old one.

    Raises:
        RunError: the run was about something else.
    """
    earlier = next((e.data for e in journal.entries if e.kind == "run"), None)
    if earlier is None and not journal.entries:
        journal.write("run", description)
        return
    if earlier is None:
        raise RunError(
            f"run {journal.path.parent.name} cannot be continued: the line of its journal that "
            "says what it was about is damaged"
        )
    if difference := _difference(earlier, description):
        raise RunError(f"run {journal.path.parent.name} cannot be continued{difference}")


def can_continue(journal: Path, description: dict[str, Any]) -> bool:
    """Whether ``check_same_run`` would take the run of this journal; reads its first line alone."""
    try:
        with journal.open("rb") as lines:
            first = json.loads(lines.readline())
        return first["kind"] == "run" and not _difference(first["data"], description)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _difference(earlier: dict[str, Any], description: dict[str, Any]) -> str:
    """What keeps a run from being continued, as the end of a sentence; empty if nothing does."""
    for part, words in (
        ("mode", "it was not a training"),
        ("skills", "the skill has changed since"),
        ("suite", "the tasks have changed since"),
        ("models", "it used other models"),
    ):
        if earlier.get(part) != description[part]:
            return f": {words}"
    now, then = description["settings"], earlier.get("settings", {})
    changed = sorted(k for k in now.keys() | then.keys() if now.get(k) != then.get(k))
    listed = ", ".join(f"{name} (was {then.get(name)!r})" for name in changed)
    return f" with other settings: {listed}" if changed else ""


def documents_at_start(
    journal: Journal, directory: RunDirectory, documents: Mapping[str, Document]
) -> dict[str, Document]:
    """The skills as they were when the run began: it may have been killed after it wrote them.

    Args:
        documents: the skills on disk.
    """
    start: dict[str, str] = next((e.data["skills"] for e in journal.entries if e.kind == "run"), {})
    ours = {(e.data["skill"], e.data["version"]) for e in journal.entries if e.kind == "writing"}
    return {
        skill: Document.from_bytes(directory.content(start[skill]))
        if (skill, document.version) in ours
        else document
        for skill, document in documents.items()
    }


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256(json.dumps(sorted(lines)).encode()).hexdigest()
