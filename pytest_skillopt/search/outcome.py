"""What a training found, the rows that its report is made of, and what holds for all skills."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING

from pytest_skillopt.gate.counts import change_by
from pytest_skillopt.gate.statistics import interval, log_e, noise_floor
from pytest_skillopt.model.limits import Caps
from pytest_skillopt.model.types import Usage
from pytest_skillopt.run.result import Arm, Comparison, CostRow, Rate, RolloutSample, TaskRow, Turn
from pytest_skillopt.skill.document import SkillError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_skillopt.gate.data import Change, Verdict
    from pytest_skillopt.run.result import EditRow, Status, StepRow
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.skill.lint import Finding
    from pytest_skillopt.suite.rollouts import Rollout
    from pytest_skillopt.suite.tasks import SkillTask

_NOTHING = 1e-12
"""Differences of rates closer to zero than this are zero."""


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
    cost: CostRow | None = field(default=None, compare=False)
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
    verdict: Verdict,
) -> list[TaskRow]:
    """A row for each task; ``verdict`` says how it changed."""
    changes = {row.task: row.change for row in verdict.tasks}
    return [
        task_row(
            task, before.get(task.id, ()), after.get(task.id, ()), changes.get(task.id, "same")
        )
        for task in tasks
    ]


def comparison(rows: Sequence[TaskRow]) -> Comparison | None:
    """The pass rates of both arms over the tasks; None where none was measured before."""
    before = suite_rate((row.before.passed, row.before.n) for row in rows)
    after = suite_rate((row.after.passed, row.after.n) for row in rows if row.after)
    return Comparison(before=before, after=after) if before else None


def most_increase(setting: str) -> float:
    """``skillopt_max_cost_increase`` as a number: 20 for ``20%``, infinite where it is empty.

    Raises:
        SkillError: it is no number of per cent.
    """
    try:
        most = float(setting.strip().removesuffix("%")) if setting.strip() else math.inf
    except ValueError:
        most = -1.0
    if most < 0 or math.isnan(most):
        raise SkillError(f"skillopt_max_cost_increase: {setting!r} is no share such as 20%")
    return most


def cost_of(
    before: Mapping[str, Sequence[Rollout]], after: Mapping[str, Sequence[Rollout]]
) -> CostRow | None:
    """Tokens and seconds of a rollout, over the tasks that were measured under both versions."""
    old, new = (
        {task: [r for r in rollouts if r.measured] for task, rollouts in sorted(arm.items())}
        for arm in (before, after)
    )
    tasks = [task for task in old if old[task] and new.get(task)]
    if not tasks:
        return None

    def mean(arm: Mapping[str, Sequence[Rollout]], of: Callable[[Rollout], float]) -> float:
        return fmean(fmean(map(of, arm[task])) for task in tasks)

    return CostRow(
        tokens_before=mean(old, _tokens),
        tokens_after=mean(new, _tokens),
        seconds_before=mean(old, lambda rollout: rollout.duration),
        seconds_after=mean(new, lambda rollout: rollout.duration),
    )


def _tokens(rollout: Rollout) -> int:
    return rollout.usage.tokens


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


def task_row(
    task: SkillTask,
    before: Sequence[Rollout],
    after: Sequence[Rollout],
    change: Change = "same",
) -> TaskRow:
    """The counts of both arms, with one rollout of each as an example.

    That is a failure where there is one, and an infrastructure error where nothing was measured.
    A test task is in no decision: its change is by the evidence that a gate weighs. Usage counts
    both arms. An arm without rollouts was not run.
    """
    rollouts = [*before, *after]
    used = sum((rollout.usage + rollout.judge_usage for rollout in rollouts), Usage())
    arms = (before, after)
    old, new = map(arm_of, arms)
    if task.split == "test" and old.n and new.n:
        up = log_e(new.passed, new.n, old.passed, old.n)
        change = change_by(up, log_e(old.passed, old.n, new.passed, new.n))
    return TaskRow(
        id=task.id,
        split=task.split,
        must_pass=task.must_pass,
        trigger=task.trigger,
        marks=list(task.marks),
        before=old,
        after=new if after else None,
        change=change,
        flaky=any({r.passed for r in arm if r.measured} == {True, False} for arm in arms),
        skipped=bool(rollouts) and all(rollout.outcome == "skipped" for rollout in rollouts),
        calls=used.calls + used.cached,
        tokens=used.input_tokens + used.output_tokens,
        cost=used.cost,
    )


def arm_of(rollouts: Sequence[Rollout]) -> Arm:
    measured = [rollout for rollout in rollouts if rollout.measured]
    scores = [rollout.score for rollout in measured if rollout.score is not None]
    failed = [rollout for rollout in measured if not rollout.passed]
    errors = [rollout for rollout in rollouts if rollout.outcome == "error"]
    told = [bool(r.skill_read) for r in measured if r.skill_read is not None]
    shown = next(iter(failed or measured or errors), None)
    return Arm(
        passed=sum(rollout.passed for rollout in measured),
        n=len(measured),
        score=sum(scores) / len(scores) if scores else None,
        errors=len(errors),
        read=sum(told) if told else None,
        sample=_example(shown) if shown else None,
    )


def _example(rollout: Rollout) -> RolloutSample:
    return RolloutSample(
        outcome=rollout.outcome,
        message=rollout.error.message if rollout.error else rollout.message,
        transcript=[Turn(role=turn.role, content=turn.content) for turn in rollout.transcript],
    )


def check_together(
    outcomes: Sequence[TrainOutcome], margin: float = 0.0
) -> tuple[list[TrainOutcome], str]:
    """Take back what may not be written, in the light of all skills of the run.

    An interrupted run leaves none. If several skills were accepted, none may be worse in the
    counts of its own last comparison, and the mean over the tasks of all skills, those that stay
    as they are included, has to rise strictly.

    Args:
        margin: fall of a mean pass rate that counts as no worse, in [0, 1), for a search that only
            shortens: the mean over all tasks then has to fall by less.

    Returns:
        The outcomes, and what the whole suite came to in words; empty for fewer than two accepted.
    """
    outcomes = list(outcomes)
    if any(outcome.status == "interrupted" for outcome in outcomes):
        why = "a better skill was found; nothing is written before all skills have been trained"
        return [_taken_back(o, "interrupted", why) for o in outcomes], ""
    if sum(outcome.status == "accepted" for outcome in outcomes) < 2:
        return outcomes, ""
    why = "accepted alone, but worse in the counts of the last comparison"
    outcomes = [
        _taken_back(o, "rejected", why) if _fallen(_gains(o)) > margin + _NOTHING else o
        for o in outcomes
    ]
    gains = [gain for outcome in outcomes for gain in _gains(outcome)]
    kept = [outcome.skill for outcome in outcomes if outcome.status == "accepted"]
    if kept and _fallen(gains) >= margin - _NOTHING:
        how = f"falls by {100 * margin:g} points or more" if margin else "does not strictly rise"
        why = f"accepted alone, but the pass rate of the whole suite {how}"
        outcomes = [_taken_back(o, "rejected", why) for o in outcomes]
    points = -100 * _fallen(gains) + 0.0
    return outcomes, (
        f"with {' and '.join(kept) or 'no skill'} the pass rate of all {len(gains)} tasks that the "
        f"last comparisons measured changes by {points:+.1f} points"
    )


def _fallen(gains: Sequence[float]) -> float:
    """The fall of the mean over tasks, in [-1, 1]; 0.0 without tasks."""
    return -math.fsum(gains) / max(1, len(gains))


def _gains(outcome: TrainOutcome) -> list[float]:
    """What each train and val task gains, in the counts of the last comparison."""
    rows = [row for row in outcome.tasks if row.split != "test" and row.before.n]
    if outcome.status != "accepted":
        return [0.0 for _ in rows]
    return [
        row.after.passed / row.after.n - row.before.passed / row.before.n
        for row in rows
        if row.after and row.after.n
    ]


def _taken_back(outcome: TrainOutcome, status: Status, why: str) -> TrainOutcome:
    if outcome.status != "accepted":
        return outcome
    return replace(outcome, status=status, after=outcome.before, reason=f"{why}; {outcome.reason}")
