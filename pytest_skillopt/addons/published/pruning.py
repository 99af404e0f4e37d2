"""Prune accepted edits whose ablation makes no difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.edits.update import rebuild
from pytest_skillopt.search.ablation import log_odds
from pytest_skillopt.search.extensions import gate_options

if TYPE_CHECKING:
    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit

_TASKS = 3
"""Maximum number of tasks in the ablation of an edit."""
_NEEDED = 1.0
"""Log Bayes factor of "its tasks do better with it" above which an edit stays."""


def prune(state: TrainingState) -> None:
    """Remove the accepted edits that seem to have no effect, unless the gate finds a loss.

    The gate decides whether the full skill is better than the short one. If not, the short one
    stays.
    """
    idle = idle_edits(state, 2 * state.settings.rollouts)
    short = rebuild(state.base, [edit for edit in state.edits if edit not in idle])
    if short is None or short == state.incumbent:
        return
    gate = state.open_gate(gate_options(state.settings))
    verdict = state.samples.decide(gate, short, state.incumbent)
    state.verdicts.append(verdict)
    state.history.record("pruning", short.version, verdict)
    if verdict.decision == "rejected":
        state.drop(idle, "its ablation made no difference that the gate could detect")


def idle_edits(state: TrainingState, samples: int) -> list[Edit]:
    """Find edits without which, one by one, their tasks pass as often on fresh samples.

    An edit without tasks, or on which another edit builds, is not tested. If several edits
    share a task, only the last can be idle: two equivalent edits replace each other, so neither
    seems needed, but without both their tasks would fail.

    ``samples`` is the number for each version and task; nothing is sampled if the budget does not
    suffice for all.
    """
    known = {task.id for task in state.train}
    ablated: list[tuple[Edit, list[str]]] = []
    arms: list[tuple[Document, dict[str, int]]] = []
    for edit in state.edits:
        without = state.without(edit)
        tasks = [task for task in edit.tasks if task in known][:_TASKS]
        if without is not None and without != state.incumbent and tasks:
            ablated.append((edit, tasks))
            arms.append((without, dict.fromkeys(tasks, samples)))
    arms.append((state.incumbent, {task: samples for _, tasks in ablated for task in tasks}))
    if not state.budget.covers(sum(sum(wanted.values()) for _, wanted in arms)):
        return []
    *others, whole = state.samples.take_all(arms, "trial")
    idle: list[Edit] = []
    taken: set[str] = set()
    for (edit, tasks), other in reversed(list(zip(ablated, others, strict=True))):
        needed = sum(log_odds(whole[task], other[task]) for task in tasks) > _NEEDED
        if not needed and taken.isdisjoint(tasks):
            idle.insert(0, edit)
            taken.update(tasks)
    return idle
