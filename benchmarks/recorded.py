"""Versions of a policy for agents and the pass rates of real agents under them.

``benchmarks/data`` has the counts with their sources.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Edit:
    """A version of a text against another."""

    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def net(self) -> float:
        """Points of the pass rate."""
        return 100 * (sum(self.after) - sum(self.before)) / len(self.before)


@functools.cache
def versions() -> dict[str, tuple[float, ...]]:
    """Pass rates by version of the text."""
    data = json.loads((DATA / "tau2_airline_edits.json").read_text())
    return {
        version["id"]: tuple(
            version["counts"][task] / data["trials"] for task in sorted(version["counts"])
        )
        for version in data["versions"]
    }


@functools.cache
def edits() -> tuple[Edit, ...]:
    """All pairs of versions, and one that keeps the best of each task."""
    rates = versions()
    found = [Edit(rates[old], rates[new]) for old in rates for new in rates if old != new]
    best = tuple(max(task) for task in zip(*rates.values(), strict=True))
    return (*found, Edit(rates["seed"], best))
