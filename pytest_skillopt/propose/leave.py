"""The end of a training: a proposal made from what lies in the run's directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_skillopt.propose.git import describe
from pytest_skillopt.propose.manifest import write_proposal
from pytest_skillopt.report.files import HTML
from pytest_skillopt.report.markdown import pull_request_body
from pytest_skillopt.run.journal import read_entries

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_skillopt.run.directory import Home
    from pytest_skillopt.run.result import Result, SkillResult


def leave_proposal(root: Path, home: Home, run: Path, result: Result) -> bool:
    """Replace the project's proposal by that of a run, or remove it when nothing was accepted.

    Args:
        root: the project's root directory.
        home: where the proposal goes.
        run: directory of the run, its reports written.
        result: of the run.

    Returns:
        Whether there is a proposal now; never outside of git.

    Raises:
        OSError: a file cannot be read or written.
    """
    accepted = [row for row in result.skills if row.status == "accepted"]
    return write_proposal(
        home.proposal,
        result,
        [(row.path, _version(run, row.before), _version(run, row.after)) for row in accepted],
        describe(root) if accepted else None,
        pull_request_body(result),
        run / HTML,
        gates=_gates(run, accepted),
    )


def _version(run: Path, version: str) -> bytes:
    return (run / "skills" / f"{version}.md").read_bytes()


def _gates(run: Path, accepted: list[SkillResult]) -> dict[str, dict[str, Any]]:
    """By path, the verdict of the gate that accepted the version a skill ended with."""
    if not accepted:
        return {}
    entries = read_entries(run / "journal.jsonl")
    verdicts = [entry.data for entry in entries if entry.kind == "verdict"]
    found = {
        data["candidate"]: data
        for data in verdicts
        if data.get("decision") == "accepted" and not str(data.get("gate")).startswith("final")
    }
    return {row.path: found[row.after] for row in accepted if row.after in found}
