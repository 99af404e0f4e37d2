"""One row a task for the report: how it went before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.gate.counts import change_by
from pytest_skillopt.gate.statistics import log_e
from pytest_skillopt.run.result import Arm, RolloutSample, TaskRow, Turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.gate.data import Change
    from pytest_skillopt.suite.rollouts import Rollout
    from pytest_skillopt.suite.tasks import SkillTask


def task_row(
    task: SkillTask,
    before: Sequence[Rollout],
    after: Sequence[Rollout],
    change: Change = "same",
) -> TaskRow:
    """The counts of both arms, with one rollout of each as an example.

    That is a failure where there is one, and an infrastructure error where nothing was measured.
    A test task is in no decision: its change is by its counts. Usage counts both arms. An arm
    without rollouts was not run.
    """
    rollouts = [*before, *after]
    usages = [rollout.usage + rollout.judge_usage for rollout in rollouts]
    costs = [usage.cost for usage in usages if usage.cost is not None]
    arms = (before, after)
    return TaskRow(
        id=task.id,
        split=task.split,
        must_pass=task.must_pass,
        marks=list(task.marks),
        before=arm_of(before),
        after=arm_of(after) if after else None,
        change=_change_by_counts(before, after) if task.split == "test" else change,
        flaky=any({r.passed for r in arm if r.measured} == {True, False} for arm in arms),
        skipped=bool(rollouts) and all(rollout.outcome == "skipped" for rollout in rollouts),
        calls=sum(usage.calls + usage.cached for usage in usages),
        tokens=sum(usage.input_tokens + usage.output_tokens for usage in usages),
        cost=sum(costs) if costs else None,
    )


def _change_by_counts(before: Sequence[Rollout], after: Sequence[Rollout]) -> Change:
    """By the evidence that a gate weighs."""
    old, new = arm_of(before), arm_of(after)
    if not old.n or not new.n:
        return "same"
    return change_by(
        log_e(new.passed, new.n, old.passed, old.n), log_e(old.passed, old.n, new.passed, new.n)
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
