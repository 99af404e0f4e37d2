"""Carry out a mode on the collected tasks and write its result.

To add a mode, write its function, name it in ``FUNCTIONS`` and declare it in ``mode.py``; or write
a plugin.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pytest_skillopt.compare.modes import COMPARISONS, compare
from pytest_skillopt.errors import UserError
from pytest_skillopt.hookresults import PluginError, naming
from pytest_skillopt.model.types import CacheError
from pytest_skillopt.modes.evaluate import evaluate
from pytest_skillopt.modes.forecast import forecast, plan_entry
from pytest_skillopt.modes.opening import open_run
from pytest_skillopt.modes.train import train
from pytest_skillopt.plugins import merged, switched_off
from pytest_skillopt.report.files import write_reports, write_result
from pytest_skillopt.report.junit import properties
from pytest_skillopt.report.live import Display
from pytest_skillopt.rollouts.sampler import Stop, StopRun
from pytest_skillopt.run.journal import JournalError
from pytest_skillopt.run.result import Arm, TaskRow
from pytest_skillopt.untrusted import shown
from pytest_skillopt.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_skillopt.mode import Mode
    from pytest_skillopt.rollouts.executor import WorkersExecutor
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Result, SkillResult, Status
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.tasks.task import SkillTask

Outcome = Literal["passed", "failed", "skipped"]
FUNCTIONS: Mapping[str, Callable[[Run, Display], Result]] = {
    "evaluate": evaluate,
    "train": train,
    **dict.fromkeys(COMPARISONS, compare),
}
"""Functions of the core's modes, by the names of these."""


def conduct(
    config: pytest.Config,
    mode: Mode,
    settings: Settings,
    executor: WorkersExecutor,
    tasks: list[SkillTask],
) -> tuple[Result, list[pytest.TestReport]]:
    """Carry out a mode, write its result, and return it with a pytest report for each task.

    Raises:
        pytest.UsageError: the suite, a skill, a model or the run cannot be used as it is.
    """
    display = Display(config)
    with (
        _as_usage_errors(config),
        open_run(config, mode, settings, executor, tasks, display.rollout) as run,
    ):
        numbers = forecast(run.tasks, mode, settings)
        display.header(run, numbers)
        run.journal.write("plan", plan_entry(run, numbers))
        try:
            result = _carry_out(run, display)
        finally:
            display.end()
        result.notes.extend(_notes_on_skips(result))
        hook = config.hook.pytest_skillopt_result
        _attempt(result, "the result", functools.partial(hook, config=config, result=result))
        result = _write_and_tell(config, run, result)
    return result, list(task_reports(run, result))


def fails_the_session(mode: Mode, result: Result) -> bool:
    """Return whether the result makes pytest exit with 1, whatever the tests' outcomes."""
    if mode.needs_evidence and any(map(_lacks_evidence, result.skills)):
        return True
    undecided = result.status == "unmeasured" and (mode.strict or not result.skills)
    return undecided or result.status in mode.fails


def _lacks_evidence(skill: SkillResult) -> bool:
    """Return whether a comparison ended before the gate had weighed its samples."""
    verdict = skill.verdict
    return verdict is not None and skill.status == "unmeasured" and verdict["e_value"] is None


def _carry_out(run: Run, display: Display) -> Result:
    """Run the mode; turn a stop or an error on the way into a result as well."""
    status: Status = "unmeasured"
    try:
        with naming():
            return run.mode.carry_out(run, display)
    except PluginError as error:
        reason = str(error)
    except StopRun as stop:
        reason = stop.reason
        if stop.kind is Stop.INTERRUPTED:
            status = "interrupted"
    except KeyboardInterrupt:
        status = "interrupted"
        reason = "the session was interrupted"
    except JournalError as error:
        reason = f"the journal could not be written: {error}"
    except OSError as error:
        reason = f"a file of the run could not be read or written: {error}"
    return run.result(status, reason, [], resume=run.resume_command())


def _write_and_tell(config: pytest.Config, run: Run, result: Result) -> Result:
    """Write a result and its reports, and tell the plugins; return it with notes on failures.

    Until all of that is done, its training can be continued: a kill in between would else leave it
    without its proposal for good.
    """
    folder = run.directory.path
    hook = config.hook
    resumable = result.model_copy(update={"resume": run.resume_command()})
    reports: dict[str, str] = {}

    def ask_plugins() -> None:
        reports.update(merged(hook.pytest_skillopt_report(config=config, result=result)))

    def write() -> None:
        write_result(folder, resumable)
        write_reports(folder, result, reports)

    def tell_plugins() -> None:
        hook.pytest_skillopt_finished(config=config, result=result, folder=folder)

    _attempt(result, "a plugin's report", ask_plugins)
    is_written = _attempt(result, "the report", write)
    is_told = _attempt(result, "a plugin's output", tell_plugins)
    if not (is_written and is_told):
        return resumable
    finish = functools.partial(write_result, folder, result)
    return result if _attempt(result, "the result", finish) else resumable


def _attempt(result: Result, what: str, write: Callable[[], object]) -> bool:
    """Write something, and return whether that succeeded: if not, a note of the result says why.

    Neither a full disk nor a fault of a plugin loses the report of what was paid for.
    """
    try:
        write()
    except Exception as error:
        kind = "" if isinstance(error, OSError | pytest.UsageError) else f"{type(error).__name__}: "
        result.notes.append(f"{what} could not be written: {kind}{error}")
        return False
    return True


@contextlib.contextmanager
def _as_usage_errors(config: pytest.Config) -> Iterator[None]:
    try:
        with naming():
            yield
    except (UserError, CacheError, JournalError) as error:
        raise pytest.UsageError(shown(f"{error}{switched_off(config)}")) from error


def task_reports(run: Run, result: Result) -> Iterator[pytest.TestReport]:
    """Yield the tasks as test cases: with ``--skillopt`` judged by their pass rate, else passed.

    Each task has a report for the call and one for the teardown, where junitxml closes a case.
    """
    least = {task.id: task.min_pass_rate for task in run.tasks}
    for row in _rows(run, result):
        outcome: Outcome = "passed"
        message = ""
        if run.mode.judges_tasks:
            wanted = least.get(row.id)
            if wanted is None:
                wanted = run.settings.min_pass_rate
            outcome, message = _judge(row, wanted, is_capped=result.status == "measured")
        text = shown(message)
        path, _, rest = row.id.partition("::")
        ends: dict[Literal["call", "teardown"], Outcome]
        ends = {"call": outcome, "teardown": "passed"}
        for when, end in ends.items():
            longrepr: Any = text or None
            if end == "skipped":
                longrepr = (path, 0, text)
            yield pytest.TestReport(
                nodeid=row.id,
                location=(path, None, rest.replace("::", ".")),
                keywords={},
                outcome=end,
                longrepr=longrepr,
                when=when,
                user_properties=properties(row),
                skillopt_measured=not run.mode.judges_tasks,
            )


def _rows(run: Run, result: Result) -> list[TaskRow]:
    """List the tasks of a result; of a training also those that only its search has measured."""
    rows = [row for skill in result.skills for row in skill.tasks]
    if run.mode.name == "train":
        unknown = run.sampler.usage.keys() - {row.id for row in rows}
        missing = [task for task in run.tasks if task.id in unknown]
        rows += [TaskRow(id=task.id, split=task.split, before=Arm()) for task in missing]
    return rows


def _why_skipped(row: TaskRow) -> str:
    """Return the reason of a task that is skipped in every rollout."""
    return row.before.sample.message if row.before.sample else ""


def _notes_on_skips(result: Result) -> Iterator[str]:
    """Note how many tasks are skipped in every rollout, by the reason."""
    rows = (row for skill in result.skills for row in skill.tasks if row.skipped)
    for reason, count in Counter(map(_why_skipped, rows)).items():
        yield f"{plural(count, 'task')} skipped in every rollout: {reason}"


def _judge(row: TaskRow, least: float, *, is_capped: bool) -> tuple[Outcome, str]:
    """Return the outcome of a task as a test, and why; ``is_capped``: only a cap ends the run."""
    arm = row.before
    met = f"\n{arm.sample.message}" if arm.sample and arm.sample.message else ""
    if row.skipped:
        return "skipped", f"skipped in every rollout: {_why_skipped(row)}"
    if not arm.n and not arm.errors and is_capped:
        return "skipped", "not measured: a cap ended the run before that"
    if not arm.n and not arm.errors:
        return "failed", "never measured: the run ended before that"
    if not arm.n:
        ended = plural(arm.errors, "rollout")
        return "failed", f"never measured: {ended} ended in an infrastructure error{met}"
    if arm.passed / arm.n >= least:
        return "passed", ""
    failed = arm.sample is not None and arm.sample.outcome == "failed"
    passed = f"passed {arm.passed} of {arm.n} rollouts, min_pass_rate is {least:g}"
    return "failed", passed + (met if failed else "")
