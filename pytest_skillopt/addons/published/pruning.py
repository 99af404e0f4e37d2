"""Pruning: every accepted edit is left out once, and what makes no difference goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.edits.compose import rebuild
from pytest_skillopt.search.ablation import log_odds
from pytest_skillopt.search.stages import gate_options

if TYPE_CHECKING:
    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit

_TASKS = 3
"""Tasks on which an edit is left out, at most."""
_MISSED = 1.0
"""Log Bayes factor of "its tasks do better with it" above which an edit stays."""


def prune(state: TrainingState) -> None:
    """Leave out the accepted edits that look idle, unless the gate says that they are missed.

    The gate is asked the other way round: is the full skill credibly better than the short one? If
    it cannot tell, the short one stays.
    """
    idle = idle_edits(state, 2 * state.settings.rollouts)
    short = rebuild(state.base, [line for line in state.lines if line not in idle])
    if short is None or short == state.incumbent:
        return
    gate = state.open_gate(gate_options(state.settings), tape={})
    verdict = state.samples.decide(gate, short, state.incumbent)
    state.verdicts.append(verdict)
    state.history.record("pruning", short.version, verdict)
    if verdict.decision == "rejected":
        state.drop(idle, "leaving it out made no difference that the gate could see")


def idle_edits(state: TrainingState, samples: int) -> list[Edit]:
    """Edits whose tasks do not fall back when they are left out, one by one, on fresh samples.

    One that another builds on, or that has no task, cannot be judged. Of several that share a task
    the last alone is idle: two that say the same stand in for each other, so that neither is
    missed, and without both their tasks fall back.

    Args:
        samples: of each arm and task; none are taken where the means do not reach for all.
    """
    known = {task.id for task in state.train}
    lines: list[tuple[Edit, list[str]]] = []
    arms: list[tuple[Document, dict[str, int]]] = []
    for line in state.lines:
        without = state.without(line)
        tasks = [task for task in line.tasks if task in known][:_TASKS]
        if without is not None and without != state.incumbent and tasks:
            lines.append((line, tasks))
            arms.append((without, dict.fromkeys(tasks, samples)))
    arms.append((state.incumbent, {task: samples for _, tasks in lines for task in tasks}))
    if not state.budget.covers(sum(sum(wanted.values()) for _, wanted in arms)):
        return []
    *others, whole = state.samples.take_all(arms, "trial")
    idle: list[Edit] = []
    taken: set[str] = set()
    for (line, tasks), other in reversed(list(zip(lines, others, strict=True))):
        missed = sum(log_odds(whole[task], other[task]) for task in tasks) > _MISSED
        if not missed and taken.isdisjoint(tasks):
            idle.insert(0, line)
            taken.update(tasks)
    return idle
