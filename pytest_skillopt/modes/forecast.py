"""The most that a mode could cost, from its tasks and settings alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.optimizer.parameters import TrialParameters
from pytest_skillopt.optimizer.search_batch import batch_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_skillopt.mode import Mode
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.tasks import SkillTask


def forecast(tasks: Sequence[SkillTask], mode: Mode, settings: Settings) -> Iterator[str]:
    """Upper bounds of rollouts and calls, in words."""
    rollouts = most_rollouts(tasks, mode, settings)
    if settings.max_rollouts:
        rollouts = min(rollouts, settings.max_rollouts)
    turns = settings.max_turns if any("target" in task.roles for task in tasks) else 1
    yield f"at most {rollouts:,} rollouts, skillopt_max_rollouts caps them"
    yield (
        f"at most {rollouts:,} skill_agent calls of one turn; one that uses tools takes up to "
        f"{turns} turns, skillopt_max_calls caps all model calls together"
    )


def most_rollouts(tasks: Sequence[SkillTask], mode: Mode, settings: Settings) -> int:
    """Upper bound of the rollouts of a mode; infrastructure errors that are retried come on top."""
    each = sum(task.rollouts or settings.rollouts for task in tasks)
    if mode.name == "evaluate":
        return each
    if mode.name != "train":
        return 2 * len(tasks) * settings.gate_kmax
    return _most_of_training(tasks, settings)


def _most_of_training(tasks: Sequence[SkillTask], settings: Settings) -> int:
    train = [task for task in tasks if task.split in ("train", "both")]
    val = [task for task in tasks if task.split in ("val", "both")]
    test = [task for task in tasks if task.split == "test"]
    final = 2 * settings.final_rollouts * (len(tasks) - len(test))
    final += 2 * sum(task.rollouts or settings.rollouts for task in test)
    if settings.search == "trials":
        return TrialParameters().search_samples(len(train) + len(val)) + final
    size = batch_size(len(train), settings.batch_size)
    steps = settings.epochs * -(-len(train) // size)
    decision = 2 * settings.gate_kmax * len(val)
    return steps * (size * settings.rollouts * settings.accumulation + decision) + final
