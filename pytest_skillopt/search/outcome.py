"""What a training found, and the rows that its report is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_skillopt.gate.statistics import interval, noise_floor
from pytest_skillopt.model.limits import Caps
from pytest_skillopt.run.result import Comparison, Rate
from pytest_skillopt.search.taskrows import task_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_skillopt.gate.data import Verdict
    from pytest_skillopt.run.result import EditRow, Status, StepRow, TaskRow
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.skill.lint import Finding
    from pytest_skillopt.suite.rollouts import Rollout
    from pytest_skillopt.suite.tasks import SkillTask


@dataclass(frozen=True, slots=True)
class TrainOutcome:
    """What a training found. ``after`` is the document to write; ``before`` where nothing is."""

    skill: str
    before: Document
    after: Document
    status: Status
    reason: str
    proposal: Document
    """The best that the search found, whether or not it may be written."""
    accepted: tuple[Edit, ...] = ()
    """The edits of ``proposal``, in order, with their reasons and tasks."""
    verdict: Verdict | None = None
    """That of the final comparison."""
    resumable: bool = False
    """Another session could take the run further. Never where the final comparison has reached a
    verdict: that stands, however often the run is continued."""
    suite: Comparison | None = None
    from_search: int = 0
    """Tasks of ``suite`` whose rate before is that of samples which the search took."""
    val: Comparison | None = None
    test: Comparison | None = None
    steps: tuple[StepRow, ...] = ()
    edits: tuple[EditRow, ...] = ()
    tasks: tuple[TaskRow, ...] = ()
    noise: float | None = None
    """Standard deviation of the pass rate between two evaluations of the skill on disk with so many
    rollouts as the settings say, by the samples there are of it; None without any."""
    shared_train_val: bool = False
    warnings: tuple[Finding, ...] = ()
    """What a reader of the change to ``proposal`` should look at."""
    notes: tuple[str, ...] = ()
    samples: int = 0
    optimizer_calls: int = 0
    spent: Caps = field(default=Caps(), compare=False)
    """What it took, replies of the cache included, as it counts towards the caps."""


def task_rows(
    tasks: Iterable[SkillTask],
    before: Mapping[str, Sequence[Rollout]],
    after: Mapping[str, Sequence[Rollout]],
    verdict: Verdict | None,
) -> list[TaskRow]:
    """A row for each task that was measured before; ``verdict`` says how it changed."""
    changes = {row.task: row.change for row in verdict.tasks} if verdict else {}
    return [
        task_row(task, before[task.id], after.get(task.id, []), changes.get(task.id, "same"))
        for task in tasks
        if task.id in before
    ]


def comparison(rows: Sequence[TaskRow]) -> Comparison | None:
    """The pass rates of both arms over the tasks; None where none was measured before."""
    before = suite_rate((row.before.passed, row.before.n) for row in rows)
    after = suite_rate((row.after.passed, row.after.n) for row in rows if row.after)
    return Comparison(before=before, after=after) if before else None


def noise_of(at_start: Mapping[str, Sequence[Rollout]], rollouts: int) -> float | None:
    """How much the suite moves by itself, by the rollouts there are of one version, by task."""
    counts = [
        (sum(bool(r.passed) for r in found), sum(r.measured for r in found))
        for found in at_start.values()
    ]
    return noise_floor(counts, rollouts) if any(n for _, n in counts) else None


def suite_rate(counts: Iterable[tuple[int, int]]) -> Rate | None:
    """Mean over tasks of passed / measured, with a 95 % interval over repeated rollouts.

    Args:
        counts: (passed, measured) of each task; tasks that were never measured are left out.

    Returns:
        None when no task was measured.
    """
    known = [(passed, n) for passed, n in counts if n]
    if not known:
        return None
    rate = sum(passed / n for passed, n in known) / len(known)
    low, high = interval(known)
    return Rate(
        rate=rate,
        low=min(low, rate),
        high=max(high, rate),
        tasks=len(known),
        samples=sum(n for _, n in known),
    )
