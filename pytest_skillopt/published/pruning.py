"""Pruning: every gathered edit is left out once, and what makes no difference goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.edits.compose import rebuild
from pytest_skillopt.edits.records import goes_further
from pytest_skillopt.gate.statistics import log_bayes_factor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.suite.rollouts import Rollout

_TASKS = 3
"""Tasks on which a line is left out, at most."""
_MISSED, _NOT_MISSED = 2.0, -2.0
"""Log Bayes factors at which it is clear whether a line is missed."""
_PROBABLY_MISSED = 1.0
"""Where that stays unclear: the log Bayes factor above which a line stays."""


@dataclass(slots=True)
class LeftOut:
    """One line, left out and kept, on its tasks."""

    line: Edit
    without: Document
    tasks: tuple[str, ...]
    likelier: float = 0.0
    """Log Bayes factor of "its tasks do better with it" against "they do alike"."""
    complete: bool = False
    """Whether all the samples were taken that may be."""

    @property
    def idle(self) -> bool:
        return self.likelier <= (_PROBABLY_MISSED if self.complete else _NOT_MISSED)

    @property
    def open(self) -> bool:
        return _NOT_MISSED < self.likelier < _MISSED


def leave_out(
    state: TrainingState,
    base: Document,
    lines: Sequence[Edit],
    tasks: Mapping[Edit, Sequence[str]],
    samples: int,
) -> list[LeftOut]:
    """Whether the tasks of each line fall back when it is left out.

    Each line is left out alone. Both arms get fresh samples of its tasks, those of the whole shared
    by the lines, until it is clear which lines are missed; a line for which that stays unclear is
    idle unless the evidence is in its favour, or the means did not reach for all the samples. A
    line that another one builds on is not idle, and one without tasks cannot be judged: neither is
    in the answer.

    Args:
        base: the document without any of the lines.
        lines: all of them, in order.
        tasks: train tasks of each line that is to be left out.
        samples: the most of each arm and task; where the means do not reach for all lines, the
            first go first.
    """
    whole = rebuild(base, lines)
    compared = _comparisons(base, whole, lines, tasks)
    kept: dict[str, list[Rollout]] = {}
    left_out: dict[tuple[Edit, str], list[Rollout]] = {}
    for number in range(samples):
        running = [comparison for comparison in compared if comparison.open]
        while running and not state.budget.covers(_size(running)):
            running.pop()
        if whole is None or not running:
            break
        union = dict.fromkeys((task for c in running for task in c.tasks), 1)
        arms = [(whole, union), *((c.without, dict.fromkeys(c.tasks, 1)) for c in running)]
        with_all, *without = state.samples.take_all(arms, "trial")
        for task, rollouts in with_all.items():
            kept.setdefault(task, []).extend(rollouts)
        for comparison, found in zip(running, without, strict=True):
            for task, rollouts in found.items():
                left_out.setdefault((comparison.line, task), []).extend(rollouts)
            arms_of = {t: (kept[t], left_out[comparison.line, t]) for t in comparison.tasks}
            comparison.complete = number == samples - 1
            comparison.likelier = sum(_log_factor(*arms) for arms in arms_of.values())
    return compared


def _size(running: Sequence[LeftOut]) -> int:
    """Samples of one more round."""
    union = {task for comparison in running for task in comparison.tasks}
    return len(union) + sum(len(comparison.tasks) for comparison in running)


def idle_lines(compared: Sequence[LeftOut]) -> list[Edit]:
    """Lines that are not missed, in order; of several that share a task, the last alone.

    Two lines that say the same stand in for each other, so that neither is missed, and without both
    their tasks fall back. Whether the earlier one is missed shows without the later.
    """
    chosen: list[LeftOut] = []
    for one in reversed([comparison for comparison in compared if comparison.idle]):
        if all(set(one.tasks).isdisjoint(other.tasks) for other in chosen):
            chosen.append(one)
    return [one.line for one in reversed(chosen)]


def _comparisons(
    base: Document,
    whole: Document | None,
    lines: Sequence[Edit],
    tasks: Mapping[Edit, Sequence[str]],
) -> list[LeftOut]:
    compared = []
    for line, asking in tasks.items():
        without = rebuild(base, [other for other in lines if other != line])
        if without is not None and without != whole and asking:
            compared.append(LeftOut(line, without, tuple(asking)[:_TASKS]))
    return compared


def _log_factor(one: Sequence[Rollout], other: Sequence[Rollout]) -> float:
    """Log Bayes factor that a task does better in the one arm."""
    ours, theirs = _measured(one), _measured(other)
    return log_bayes_factor(_good(ours, theirs), len(ours), _good(theirs, ours), len(theirs))


def _measured(rollouts: Sequence[Rollout]) -> list[Rollout]:
    return [rollout for rollout in rollouts if rollout.measured]


def _good(arm: Sequence[Rollout], other: Sequence[Rollout]) -> int:
    """Rollouts that passed, or failed further on than every failure of the other arm."""
    failures = [rollout for rollout in other if not rollout.passed]
    return sum(rollout.passed or goes_further(rollout, failures) for rollout in arm)


def prune(state: TrainingState) -> None:
    """Leave out the accepted edits that look idle, unless the gate says that they are missed.

    The gate is asked the other way round: is the full skill credibly better than the short one? If
    it cannot tell, the short one stays.
    """
    known = {task.id for task in state.train}
    lines = list(state.lines)
    tasks = {line: [task for task in line.tasks if task in known] for line in lines}
    idle = idle_lines(leave_out(state, state.base, lines, tasks, 2 * state.settings.rollouts))
    if not idle:
        return
    kept = [line for line in lines if line not in idle]
    short = rebuild(state.base, kept)
    if short is None or short == state.incumbent or state.misses(short):
        return
    state.shorten(short, kept)
    state.history.settle(
        idle, "dropped", "leaving it out made no difference that the gate could see"
    )
