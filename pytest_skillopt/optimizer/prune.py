"""Pruning: every accepted edit is left out once, and what makes no difference goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.optimizer.records import TaskRecord
from pytest_skillopt.skill.edits import apply

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.optimizer.context import Context
    from pytest_skillopt.optimizer.proposals import Proposal
    from pytest_skillopt.optimizer.workbench import Workbench
    from pytest_skillopt.skill.document import Document

_TASKS = 4
"""Asking tasks on which a line is left out, at most."""


def rebuild(base: Document, lines: Iterable[Proposal]) -> Document | None:
    """The base with these edits applied; None where one of them no longer fits."""
    applied = apply(base, tuple(line.edit for line in lines))
    return None if applied.refused else applied.document


def idle_lines(
    bench: Workbench, base: Document, lines: Sequence[Proposal], samples: int
) -> list[Proposal]:
    """Lines whose tasks do not fall back when the line is left out.

    Each line is left out alone; both arms get ``samples`` fresh samples of the tasks that asked
    for it. A line that another one needs (it no longer applies without it) is not idle.

    Args:
        base: the document without any of the lines.
    """
    whole = rebuild(base, lines)
    if whole is None:
        return []
    without = [rebuild(base, [o for o in lines if o is not line]) for line in lines]
    known = {task.id: task for task in bench.train}
    rounds: list[tuple[Document, dict[str, int]]] = []
    tested: list[Proposal] = []
    for line, document in zip(lines, without, strict=True):
        tasks = [task for task in line.tasks if task in known][:_TASKS]
        if document is not None and tasks:
            counts = dict.fromkeys(tasks, samples)
            rounds += [(whole, counts), (document, counts)]
            tested.append(line)
    found = bench.sample_all(rounds, "trial")
    idle = []
    for number, line in enumerate(tested):
        arms = [
            [
                TaskRecord.of(known[task], rollouts)
                for task, rollouts in found[2 * number + arm].items()
            ]
            for arm in (0, 1)
        ]
        kept, left_out = (sum(record.rate for record in arm if record.n) for arm in arms)
        if kept <= left_out:
            idle.append(line)
    return idle


def prune(bench: Workbench, context: Context) -> None:
    """Leave out the accepted edits that look idle, unless the gate says that they are missed.

    The gate is asked the other way round: is the full skill credibly better than the short one? If
    it cannot tell, the short one stays.
    """
    lines = list(bench.lines)
    if not lines or not context.settings.pruning:
        return
    idle = idle_lines(bench, bench.base, lines, context.settings.rollouts)
    if not idle:
        return
    kept = [line for line in lines if line not in idle]
    short = rebuild(bench.base, kept)
    if short is None or short == bench.incumbent:
        return
    if bench.misses(short):
        return
    bench.shorten(short, kept)
    bench.settle(idle, "dropped", "leaving it out made no difference that the gate could see")
