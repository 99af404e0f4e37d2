"""Pruning: every accepted edit is left out once, and what makes no difference goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.edits.compose import rebuild
from pytest_skillopt.gate.statistics import log_bayes_factor
from pytest_skillopt.search.ablation import count_good

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.suite.rollouts import Rollout

_TASKS = 3
"""Tasks on which an edit is left out, at most."""
_MISSED = 1.0
"""Log Bayes factor of "its tasks do better with it" above which an edit stays."""

_LeftOut = tuple["Edit", "Document", "list[str]"]
"""An edit, the skill without it, and its tasks."""


def prune(state: TrainingState) -> None:
    """Leave out the accepted edits that look idle, unless the gate says that they are missed.

    The gate is asked the other way round: is the full skill credibly better than the short one? If
    it cannot tell, the short one stays.
    """
    idle = idle_edits(state, 2 * state.settings.rollouts)
    short = rebuild(state.base, [line for line in state.lines if line not in idle])
    if short is not None and short != state.incumbent and not state.misses(short):
        state.drop(idle, "leaving it out made no difference that the gate could see")


def idle_edits(state: TrainingState, samples: int) -> list[Edit]:
    """Edits whose tasks do not fall back when they are left out, one by one, on fresh samples.

    One that another builds on, or that has no task, cannot be judged. Of several that share a task
    the last alone is idle: two that say the same stand in for each other, so that neither is
    missed, and without both their tasks fall back.

    Args:
        samples: of each arm and task; where the means do not reach for all edits, the first go
            first.
    """
    known = {task.id for task in state.train}
    compared: list[_LeftOut] = []
    for line in state.lines:
        without, tasks = state.without(line), [task for task in line.tasks if task in known]
        if without is not None and without != state.incumbent and tasks:
            compared.append((line, without, tasks[:_TASKS]))
    while compared and not state.budget.covers(samples * _size(compared)):
        compared.pop()
    if not compared:
        return []
    union = dict.fromkeys((task for _, _, tasks in compared for task in tasks), samples)
    arms = [(without, dict.fromkeys(tasks, samples)) for _, without, tasks in compared]
    whole, *others = state.samples.take_all([(state.incumbent, union), *arms], "trial")
    idle: list[Edit] = []
    taken: set[str] = set()
    for (line, _, tasks), other in reversed(list(zip(compared, others, strict=True))):
        missed = sum(_log_factor(whole[task], other[task]) for task in tasks) > _MISSED
        if not missed and taken.isdisjoint(tasks):
            idle.insert(0, line)
            taken.update(tasks)
    return idle


def _size(compared: Sequence[_LeftOut]) -> int:
    """Arms and tasks to sample."""
    union = {task for _, _, tasks in compared for task in tasks}
    return len(union) + sum(len(tasks) for _, _, tasks in compared)


def _log_factor(one: Sequence[Rollout], other: Sequence[Rollout]) -> float:
    """Log Bayes factor that a task does better in the one arm."""
    ours, theirs = ([r for r in arm if r.measured] for arm in (one, other))
    return log_bayes_factor(
        count_good(ours, theirs), len(ours), count_good(theirs, ours), len(theirs)
    )
