"""Bounds of a mode's rollouts and calls, before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.modes.skills import judged, skills_of
from pytest_skillopt.search.extensions import added_search
from pytest_skillopt.search.parameters import TrialParameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.options import Mode
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.tasks import SkillTask

_CALLS = 0.5
"""Typical part of the upper bound of optimizer calls."""
_CALLS_FOR_TASK = 4.4
"""Typical optimizer calls for each train task of a small suite."""


@dataclass(frozen=True, slots=True)
class Expected:
    most: int
    """Upper bound of rollouts, without retries after infrastructure errors."""
    typical: int
    calls: int
    """Upper bound of optimizer calls."""
    typical_calls: int


def expected(tasks: Sequence[SkillTask], mode: Mode, settings: Settings) -> Expected:
    """Return the upper bounds and the typical numbers (``benchmarks/plan.py``)."""
    rollouts = calls = usual = 0
    if mode.name == "train":
        groups = [judged(tasks, skill, settings) for skill in skills_of(tasks)]
        search = added_search(settings) or TrialParameters()
        rollouts, calls = map(sum, zip(*(search.most(g, settings) for g in groups), strict=True))
        tasks = [task for group in groups for task in group]
        train = sum(task.split in ("train", "both") for task in tasks)
        usual = round(min(_CALLS * calls, _CALLS_FOR_TASK * train))
    rollouts += sum(mode.samples(task, settings) for task in tasks)
    rollouts += on_each_target(tasks, mode, settings) * len(settings.more_targets)
    cap = settings.max_rollouts or rollouts
    return Expected(min(rollouts, cap), min(round(mode.typical * rollouts), cap), calls, usual)


def on_each_target(tasks: Sequence[SkillTask], mode: Mode, settings: Settings) -> int:
    """Return the upper bound of the rollouts of a comparison on one further target."""
    most = max(2, settings.final_rollouts)
    if mode.name == "train":
        return (2 * most + most // 2) * sum(task.split != "test" for task in tasks)
    return 2 * most * len(tasks) if mode.on_targets else 0
