"""The outcome of a training, the rows of its report, and the check of all skills together."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING

from pydantic import ConfigDict

from pytest_skillopt.gate.counts import change_by
from pytest_skillopt.gate.data import Verdict
from pytest_skillopt.gate.statistics import log_e
from pytest_skillopt.model.types import Usage
from pytest_skillopt.run.result import (
    Arm,
    Comparison,
    CostRow,
    Findings,
    Rate,
    RolloutSample,
    TaskRow,
)
from pytest_skillopt.skill.edits import Edit
from pytest_skillopt.skill.version import Version
from pytest_skillopt.tasks.splits import without_test
from pytest_skillopt.words import named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_skillopt.gate.data import Change
    from pytest_skillopt.rollouts.rollout import Rollout
    from pytest_skillopt.run.result import Status
    from pytest_skillopt.tasks.task import SkillTask

_NOTHING = 1e-12
"""Differences of rates closer to zero than this are zero."""
_LIKELY_RISE = 0.2
"""Expected rise of a task's pass rate from which it is likely fixed."""


class TrainOutcome(Findings):
    """The outcome of a training; ``after`` is the version to write, or ``before`` again."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    skill: str
    before: Version
    after: Version
    proposal: Version
    """The best version that the search found, even if it may not be written."""
    accepted: tuple[Edit, ...] = ()
    """The edits of ``proposal``, in order, with their reasons and tasks."""
    verdict: Verdict | None = None
    """Verdict of the final comparison."""
    resumable: bool = False
    """True if another session could continue the run; never after the final comparison's verdict,
    which stands however often the run is continued."""
    notes: tuple[str, ...] = ()
    samples: int = 0
    optimizer_calls: int = 0


def task_rows(
    tasks: Iterable[SkillTask],
    before: Mapping[str, Sequence[Rollout]],
    after: Mapping[str, Sequence[Rollout]],
    verdict: Verdict,
) -> list[TaskRow]:
    """Make a row for each task; the verdict tells how it changed."""
    changes = {row.task: row.change for row in verdict.tasks}
    return [
        task_row(
            task, before.get(task.id, ()), after.get(task.id, ()), changes.get(task.id, "same")
        )
        for task in tasks
    ]


def comparison(rows: Sequence[TaskRow]) -> Comparison | None:
    """Return the pass rates of both arms; None if no task was measured before."""
    old = [(row.before.passed, row.before.n) for row in rows]
    new = [(row.after.passed, row.after.n) for row in rows if row.after]
    k = min((n for _, n in (*old, *new) if n), default=0)
    before = Rate.of(old, k)
    after = Rate.of(new, k)
    return Comparison(before=before, after=after) if before else None


def cost_of(
    before: Mapping[str, Sequence[Rollout]], after: Mapping[str, Sequence[Rollout]]
) -> CostRow | None:
    """Average the cost of a rollout over the tasks measured under both versions.

    ``after`` is empty if there is only one version.
    """
    arms = [_measured(arm) for arm in (before, after) if arm]
    tasks = sorted(set.intersection(*map(set, arms))) if arms else []
    if not tasks:
        return None
    found: dict[str, float | None] = {}
    for side, arm in zip(("before", "after"), arms, strict=False):

        def mean(of: Callable[[Rollout], float], arm: Mapping[str, list[Rollout]] = arm) -> float:
            return fmean(fmean(map(of, arm[task])) for task in tasks)

        found[f"tokens_{side}"] = mean(lambda rollout: rollout.usage.tokens)
        found[f"dollars_{side}"] = mean(lambda rollout: rollout.usage.worth) or None
        found[f"seconds_{side}"] = mean(lambda rollout: rollout.duration)
    return CostRow.model_validate(found)


def _measured(arm: Mapping[str, Sequence[Rollout]]) -> dict[str, list[Rollout]]:
    """Return the measured rollouts of each task that has any."""
    found = {}
    for task, rollouts in arm.items():
        if measured := [rollout for rollout in rollouts if rollout.measured]:
            found[task] = measured
    return found


def task_row(
    task: SkillTask,
    before: Sequence[Rollout],
    after: Sequence[Rollout],
    change: Change = "same",
) -> TaskRow:
    """Make the row of a task: the counts of both arms, with one rollout of each as an example.

    The example is a failure if there is one, or an infrastructure error if nothing was measured.
    No decision includes a test task: its change follows the evidence that a gate weighs. Usage
    counts both arms. An arm without rollouts was not run.
    """
    rollouts = [*before, *after]
    used = sum((rollout.all_usage for rollout in rollouts), Usage())
    arms = (before, after)
    old, new = map(arm_of, arms)
    if task.split == "test" and old.n and new.n:
        change = _change(old, new)
    is_flaky = any(map(_is_flaky, arms))
    all_skipped = bool(rollouts) and all(rollout.outcome == "skipped" for rollout in rollouts)
    calls = used.calls + used.cached
    tokens = used.input_tokens + used.output_tokens
    arm_after = new if after else None
    return TaskRow(
        id=task.id,
        split=task.split,
        must_pass=task.must_pass,
        trigger=task.trigger,
        kind=task.kind,
        before=old,
        after=arm_after,
        change=change,
        flaky=is_flaky,
        skipped=all_skipped,
        calls=calls,
        tokens=tokens,
        cost=used.cost,
    )


def _is_flaky(rollouts: Sequence[Rollout]) -> bool:
    """Return whether the measured ones of these rollouts both passed and failed."""
    return {rollout.passed for rollout in rollouts if rollout.measured} == {True, False}


def _change(old: Arm, new: Arm) -> Change:
    """Return the change of a task by the evidence that a gate weighs."""
    up = log_e(new.passed, new.n, old.passed, old.n)
    return change_by(up, log_e(old.passed, old.n, new.passed, new.n))


def with_start(row: TaskRow, start: Arm) -> TaskRow:
    """Add all samples of the skill on disk to a row, and let its change follow them, too."""
    change = row.change
    if not (row.after and row.after.n) and change != "broken":
        change = "same"
    elif row.after and start.n and change != "broken":
        change = _change(start, row.after)
    return row.model_copy(update={"start": start, "change": change})


def with_expected(row: TaskRow, expected: float) -> TaskRow:
    """Add the expected change of a task's pass rate by accepted edits, by all samples of a run.

    It is no likely rise beside counts that show a fall.
    """
    old = row.start or row.before
    new = row.after or Arm()
    fell = new.passed * old.n < old.passed * new.n
    is_open = row.change in ("undecided", "same") and row.after is not None and not fell
    change = "likely" if is_open and expected >= _LIKELY_RISE else row.change
    return row.model_copy(update={"expected": expected, "change": change})


def arm_of(rollouts: Sequence[Rollout]) -> Arm:
    measured = [rollout for rollout in rollouts if rollout.measured]
    scores = [rollout.score for rollout in measured if rollout.score is not None]
    failed = [rollout for rollout in measured if not rollout.passed]
    errors = [rollout for rollout in rollouts if rollout.outcome == "error"]
    told = [bool(r.skill_read) for r in measured if r.skill_read is not None]
    shown = next(iter(failed or measured or errors or rollouts), None)
    score = fmean(scores) if scores else None
    read = sum(told) if told else None
    sample = _example(shown) if shown else None
    passed = sum(rollout.passed for rollout in measured)
    return Arm(
        passed=passed, n=len(measured), score=score, errors=len(errors), read=read, sample=sample
    )


def _example(rollout: Rollout) -> RolloutSample:
    message = rollout.error.message if rollout.error else rollout.message
    turns = list(rollout.transcript)
    return RolloutSample(outcome=rollout.outcome, message=message, transcript=turns)


def check_together(
    outcomes: Sequence[TrainOutcome], margin: float = 0.0, *, together: bool = False
) -> tuple[list[TrainOutcome], str]:
    """Withdraw accepted skills that may not be written, considering all skills of the run.

    An interrupted run writes none. If several skills were accepted, none may be worse in the
    counts of its own final comparison, and the mean over the tasks of all skills, unchanged ones
    included, has to rise strictly.

    Args:
        outcomes: one for each skill.
        margin: fall of a mean pass rate that counts as no worse, in [0, 1), for a search that only
            shortens: the mean over all tasks then has to fall by less.
        together: if one accepted skill is withdrawn, withdraw all: they were measured together.

    Returns:
        The outcomes, and the change of the whole suite in words; empty for fewer than two accepted.
    """
    outcomes = list(outcomes)
    if any(outcome.status == "interrupted" for outcome in outcomes):
        why = "a better skill was found; nothing is written before all skills have been trained"
        return [_withdrawn(o, "interrupted", why) for o in outcomes], ""
    accepted = sum(outcome.status == "accepted" for outcome in outcomes)
    if accepted < 2:
        return outcomes, ""
    why = "accepted by itself, but worse in the counts of the final comparison"
    outcomes = [
        _withdrawn(o, "rejected", why) if _fallen(_gains(o)) > margin + _NOTHING else o
        for o in outcomes
    ]
    gains = [gain for outcome in outcomes for gain in _gains(outcome)]
    kept = [outcome.skill for outcome in outcomes if outcome.status == "accepted"]
    if together and len(kept) < accepted:
        outcomes = [_withdrawn(o, "rejected", "it was measured with one that is") for o in outcomes]
        kept = []
    if kept and _fallen(gains) >= margin - _NOTHING:
        how = f"falls by {100 * margin:g} points or more" if margin else "does not strictly rise"
        why = f"accepted by itself, but the pass rate of the whole suite {how}"
        outcomes = [_withdrawn(o, "rejected", why) for o in outcomes]
    points = -100 * _fallen(gains) + 0.0
    return outcomes, (
        f"with {named(kept) or 'no skill'} the pass rate of all {len(gains)} tasks that the "
        f"final comparisons measured changes by {points:+.1f} points"
    )


def _fallen(gains: Sequence[float]) -> float:
    """Return how much the mean over tasks falls, in [-1, 1]; 0.0 without tasks."""
    return -math.fsum(gains) / max(1, len(gains))


def _gains(outcome: TrainOutcome) -> list[float]:
    """List the gain of each train and val task in the counts of the final comparison."""
    rows = [row for row in without_test(outcome.tasks) if row.before.n]
    if outcome.status != "accepted":
        return [0.0 for _ in rows]
    return [
        row.after.passed / row.after.n - row.before.passed / row.before.n
        for row in rows
        if row.after and row.after.n
    ]


def _withdrawn(outcome: TrainOutcome, status: Status, why: str) -> TrainOutcome:
    if outcome.status != "accepted":
        return outcome
    reason = f"{why}; {outcome.reason}"
    return outcome.model_copy(update={"status": status, "after": outcome.before, "reason": reason})
