"""Pruning: every gathered edit is left out once, and what makes no difference goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.optimizer.compose import rebuild
from pytest_skillopt.optimizer.records import order_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_skillopt.optimizer.proposals import Proposal
    from pytest_skillopt.optimizer.workbench import Workbench
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.suite.rollouts import Rollout

_TASKS = 4
"""Tasks on which a line is left out, at most."""


def idle_lines(
    bench: Workbench,
    base: Document,
    lines: Sequence[Proposal],
    tasks: Mapping[Proposal, Sequence[str]],
    samples: int,
) -> list[Proposal]:
    """Lines whose tasks do not fall back when the line is left out.

    Each line is left out alone; both arms get ``samples`` fresh samples of its tasks, those of the
    whole shared by the lines. A line that another one builds on is not idle, and one without tasks
    cannot be judged.

    Args:
        base: the document without any of the lines.
        lines: all of them, in order.
        tasks: train tasks of each line that is to be left out.
    """
    whole = rebuild(base, lines)
    if whole is None:
        return []
    tested: list[tuple[Proposal, Document, list[str]]] = []
    for line, asking in tasks.items():
        document = rebuild(base, [other for other in lines if other != line])
        if document is not None and document != whole and asking:
            tested.append((line, document, list(asking)[:_TASKS]))
    if not tested:
        return []
    union = dict.fromkeys((task for _, _, asking in tested for task in asking), samples)
    rounds = [(document, dict.fromkeys(asking, samples)) for _, document, asking in tested]
    kept, *left_out = bench.sample_all([(whole, union), *rounds], "trial")
    return [
        line
        for (line, _, asking), without in zip(tested, left_out, strict=True)
        if sum(_preference(kept[task], without[task]) for task in asking) <= 0
    ]


def _preference(one: Sequence[Rollout], other: Sequence[Rollout]) -> float:
    """How often a rollout of the one is better than one of the other, less the reverse: the
    Mann-Whitney statistic, in [-1, 1]."""
    ours = [order_of(rollout) for rollout in one if rollout.measured]
    theirs = [order_of(rollout) for rollout in other if rollout.measured]
    pairs = [(a > b) - (a < b) for a in ours for b in theirs]
    return sum(pairs) / len(pairs) if pairs else 0.0


def prune(bench: Workbench) -> None:
    """Leave out the accepted edits that look idle, unless the gate says that they are missed.

    The gate is asked the other way round: is the full skill credibly better than the short one? If
    it cannot tell, the short one stays.
    """
    known = {task.id for task in bench.train}
    lines = list(bench.lines)
    tasks = {line: [task for task in line.tasks if task in known] for line in lines}
    idle = idle_lines(bench, bench.base, lines, tasks, bench.settings.rollouts)
    if not idle:
        return
    kept = [line for line in lines if line not in idle]
    short = rebuild(bench.base, kept)
    if short is None or short == bench.incumbent or bench.misses(short):
        return
    bench.shorten(short, kept)
    bench.settle(idle, "dropped", "leaving it out made no difference that the gate could see")
