"""The most that a mode could cost, from its tasks and settings alone."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pytest_skillopt.gate.forecast import smallest_gain
from pytest_skillopt.gate.gate_options import GateOptions
from pytest_skillopt.published.search_batch import batch_size
from pytest_skillopt.search.parameters import TrialParameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_skillopt.mode import Mode
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.tasks import SkillTask

FEW_TASKS = 10
"""Val tasks below which a training says what it can and cannot see."""
_CERTAIN = 10**6
"""Samples that make an assumed pass rate as good as known."""


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
    if mode.name == "train":
        yield _most_optimizer_calls(tasks, settings)
    if mode.name in ("train", "compare"):
        for where, measured in gated(tasks):
            yield where + sight(measured, settings)


def gated(tasks: Sequence[SkillTask]) -> Iterator[tuple[str, int]]:
    """For each skill how many tasks its gate measures; named, as ``path: ``, only of several."""
    skills = list(dict.fromkeys(task.skill for task in tasks))
    for skill in skills:
        count = sum(t.skill == skill and t.split in ("val", "both", "") for t in tasks)
        yield f"{skill}: " if len(skills) > 1 else "", count


def sight(tasks: int, settings: Settings) -> str:
    """What the gate can see with so many tasks, if they are like those of published agent runs.

    Two fifths that nearly always pass, a quarter that nearly always fails, the rest in between:
    the population ``agent`` of ``docs/gate.md``.
    """
    rng = random.Random(0)
    shapes = ((12.0, 1.0), (1.0, 12.0), (1.5, 1.5))
    drawn = rng.choices(shapes, (0.40, 0.25, 0.35), k=tasks)
    rates = [rng.betavariate(*shape) for shape in drawn]
    counts = [(rate * _CERTAIN, _CERTAIN) for rate in rates]
    gain = smallest_gain(counts, settings.gate, GateOptions.from_settings(settings))
    if gain is None:
        return (
            "the gate sees little but tasks that are wholly fixed; add val tasks, 10 are a good "
            "start"
        )
    return (
        f"the gate sees a gain of {100 * gain:.0f} points or more four times in five, if these "
        f"{tasks} tasks are as noisy as those of published agent runs; --skillopt-aa measures it"
    )


def _most_optimizer_calls(tasks: Sequence[SkillTask], settings: Settings) -> str:
    train = sum(task.split in ("train", "both") for task in tasks)
    if settings.search == "trials":
        calls = TrialParameters().search_calls(train)
        return (
            f"at most {calls:,} optimizer calls about failing tasks; repairs of unreadable "
            "replies, the slow update and the meta skill add a few"
        )
    size = batch_size(train, settings.batch_size)
    steps = settings.epochs * -(-train // size)
    each = 3 * size * settings.rollouts * settings.accumulation * settings.candidates
    return f"at most {2 * steps * each:,} optimizer calls, repairs of unreadable replies included"


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
