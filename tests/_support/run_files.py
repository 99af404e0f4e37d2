"""Files that the runs of a project have left behind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def all_results(root: Path) -> list[dict[str, Any]]:
    """Results of all runs, the latest last."""
    files = sorted(root.glob(".skillopt/runs/*/result.json"))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def latest_result(root: Path) -> dict[str, Any]:
    """The result of the latest run."""
    return all_results(root)[-1]


def latest_entries(root: Path, kind: str) -> list[dict[str, Any]]:
    """Data of the entries of one kind in the latest run's journal; a torn last line is none."""
    file = max(root.glob(".skillopt/runs/*/journal.jsonl"))
    lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    return [entry["data"] for entry in map(json.loads, lines) if entry["kind"] == kind]
