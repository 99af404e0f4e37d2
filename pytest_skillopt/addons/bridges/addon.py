"""Note of the pass rates by kind of task."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_skillopt.addon import AddOn

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

    from pytest_skillopt import Result
    from pytest_skillopt.run.result import Arm

ADDON = AddOn()


def pytest_skillopt_notes(config: pytest.Config, result: Result) -> str | None:
    """Note the pass rates by ``kind=`` of the marker, if the tasks have any."""
    from pytest_skillopt.addons.figures import move

    kinds: dict[str, list[tuple[Arm, Arm | None]]] = defaultdict(list)
    for row in (row for skill in result.skills for row in skill.tasks):
        for mark in row.marks:
            if mark.startswith("kind=") and (row.before.n or (row.after and row.after.n)):
                kinds[mark.removeprefix("kind=")].append((row.before, row.after))
    said = [
        f"{kind} {move(_rate(b for b, _ in arms), _rate(a for _, a in arms))} ({len(arms)})"
        for kind, arms in sorted(kinds.items())
    ]
    return f"pass rates by kind of task (tasks): {', '.join(said)}" if said else None


def _rate(arms: Iterable[Arm | None]) -> float | None:
    rates = [arm.passed / arm.n for arm in arms if arm is not None and arm.n]
    return sum(rates) / len(rates) if rates else None
