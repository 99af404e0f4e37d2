"""One pytest report a task, after everything was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from pytest_skillopt.report.junit import task_properties
from pytest_skillopt.run.result import Arm, TaskRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Result

Outcome = Literal["passed", "failed", "skipped"]


def task_reports(run: Run, result: Result) -> Iterator[pytest.TestReport]:
    """The tasks as test cases: judged by their pass rate with ``--skillopt``, else measured.

    A report for the call and one for the teardown, because junitxml closes a case with the latter.
    """
    judged = run.mode.name == "evaluate"
    least = {task.id: task.min_pass_rate for task in run.tasks}
    for row in [*_rows(result), *_without_row(run, result)]:
        judgement: tuple[Outcome, str] = ("passed", "")
        if judged:
            own = least.get(row.id)
            judgement = _judge(row, run.settings.min_pass_rate if own is None else own)
            if result.status == "measured" and not row.before.n and not row.before.errors:
                judgement = ("skipped", "not measured: a cap ended the run before that")
        outcome, words = judgement
        yield _report(row, "call", outcome, words, measured=not judged)
        yield _report(row, "teardown", "passed", words, measured=not judged)


def _rows(result: Result) -> Iterator[TaskRow]:
    return (row for skill in result.skills for row in skill.tasks)


def _without_row(run: Run, result: Result) -> Iterator[TaskRow]:
    """Tasks that a training has measured without coming to a last comparison."""
    if run.mode.name == "train":
        known = {row.id for row in _rows(result)}
        for task in run.tasks:
            if task.id in run.sampler.usage and task.id not in known:
                yield TaskRow(id=task.id, split=task.split, before=Arm())


def _judge(row: TaskRow, least: float) -> tuple[Outcome, str]:
    arm = row.before
    if row.skipped:
        return "skipped", "skipped in every rollout"
    if not arm.n:
        return "failed", _never_measured(arm)
    if arm.passed / arm.n >= least:
        return "passed", ""
    words = f"passed {arm.passed} of {arm.n} rollouts, min_pass_rate is {least:g}"
    if arm.sample and arm.sample.message and arm.sample.outcome == "failed":
        words += f"\n{arm.sample.message}"
    return "failed", words


def _never_measured(arm: Arm) -> str:
    if not arm.errors:
        return "never measured: the run ended before that"
    ended = "1 rollout" if arm.errors == 1 else f"{arm.errors} rollouts"
    words = f"never measured: {ended} ended in an infrastructure error"
    return f"{words}\n{arm.sample.message}" if arm.sample and arm.sample.message else words


def _report(
    row: TaskRow,
    when: Literal["call", "teardown"],
    outcome: Outcome,
    words: str,
    *,
    measured: bool,
) -> pytest.TestReport:
    path, _, rest = row.id.partition("::")
    location = (path, None, rest.replace("::", "."))
    longrepr = (path, 0, words) if outcome == "skipped" else words or None
    return pytest.TestReport(
        nodeid=row.id,
        location=location,
        keywords={},
        outcome=outcome,
        longrepr=longrepr,
        when=when,
        user_properties=task_properties(row),
        skillopt_measured=measured,
    )
