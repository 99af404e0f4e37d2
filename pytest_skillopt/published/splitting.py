"""Taking a rejected patch apart by what its edits did to the train tasks that asked for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.edits.records import TaskRecord
from pytest_skillopt.edits.update import apply_all

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt.edits.update import Update
    from pytest_skillopt.search.workbench import Workbench

_SAMPLES = 2
"""Fresh samples of the candidate on each task that asked for one of its edits."""


def effects_of(
    bench: Workbench, update: Update, records: Mapping[str, TaskRecord]
) -> dict[str, float]:
    """Change of the pass rate of each train task that asked for an edit, in [-1, 1].

    Empty where nothing can be told: no memory and no splitting wants it, or the means are short.
    """
    if not (bench.settings.memory or bench.settings.splitting):
        return {}
    asked = dict.fromkeys(task for p in update.applied for task in p.tasks if task in records)
    wanted = dict.fromkeys(asked, _SAMPLES)
    if not wanted or not bench.allowance.covers(sum(wanted.values())):
        return {}
    found = bench.samples.take(update.document, wanted, "trial")
    after = {task: TaskRecord.of(records[task].task, rollouts) for task, rollouts in found.items()}
    return {task: after[task].rate - records[task].rate for task in after if after[task].n}


def split(bench: Workbench, update: Update, effects: Mapping[str, float]) -> Update | None:
    """The edits whose tasks improved on the whole; None where those are all or none."""
    better = [p for p in update.applied if sum(effects.get(task, 0.0) for task in p.tasks) > 0]
    if not better or len(better) == len(update.applied):
        return None
    part = apply_all(better, bench.context.at(document=bench.incumbent, step=bench.ledger.step))
    return part if part.applied else None
