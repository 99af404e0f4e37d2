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


@dataclass(frozen=True, slots=True)
class Expected:
    most: int
    """Upper bound of rollouts, without retries after infrastructure errors."""
    typical: int
    calls: int
    """Upper bound of optimizer calls."""


def expected(tasks: Sequence[SkillTask], mode: Mode, settings: Settings) -> Expected:
    """Return the upper bounds and the typical number of rollouts (``benchmarks/plan.py``)."""
    rollouts = calls = 0
    if mode.name == "train":
        tasks = [task for skill in skills_of(tasks) for task in judged(tasks, skill, settings)]
        search = added_search(settings)
        most = search.most(tasks, settings) if search else TrialParameters().most(tasks)
        rollouts, calls = most
    rollouts += sum(mode.samples(task, settings) for task in tasks)
    rollouts += on_each_target(tasks, mode, settings) * len(settings.more_targets)
    cap = settings.max_rollouts or rollouts
    return Expected(min(rollouts, cap), min(round(mode.typical * rollouts), cap), calls)


def on_each_target(tasks: Sequence[SkillTask], mode: Mode, settings: Settings) -> int:
    """Return the upper bound of the rollouts of a comparison on one further target."""
    most = max(2, settings.final_rollouts)
    if mode.name == "train":
        return (2 * most + most // 2) * sum(task.split != "test" for task in tasks)
    return 2 * most * len(tasks) if mode.on_targets else 0
