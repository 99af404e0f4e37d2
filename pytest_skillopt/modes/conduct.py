"""From an executor and its tasks to a result: opens the run, carries out the mode, keeps all."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.model.cache import CacheError
from pytest_skillopt.model.config import check_prices, model_config
from pytest_skillopt.model.limits import Bounds, Limits
from pytest_skillopt.model.replies import Replies
from pytest_skillopt.model.types import ModelConfigError
from pytest_skillopt.models import MODELS, Models
from pytest_skillopt.modes.display import Display
from pytest_skillopt.modes.skills import read_documents, split_tasks
from pytest_skillopt.modes.taskreports import task_reports
from pytest_skillopt.report.files import write_reports
from pytest_skillopt.run.directory import Home, RunDirectory, RunError
from pytest_skillopt.run.journal import Journal, JournalError, JournalLedger
from pytest_skillopt.run.openrun import Run, command_line
from pytest_skillopt.run.resume import check_same_run, describe_run
from pytest_skillopt.skill.files import skill_files
from pytest_skillopt.suite.sampler import Limits as SamplerLimits
from pytest_skillopt.suite.sampler import Sampler, StopRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_skillopt.mode import Mode
    from pytest_skillopt.model.types import Role
    from pytest_skillopt.report.result import Result
    from pytest_skillopt.services import Services
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.executor import SkillExecutor
    from pytest_skillopt.suite.tasks import SkillTask

_ROLES: tuple[Role, ...] = ("target", "optimizer", "judge")


def conduct(
    config: pytest.Config,
    mode: Mode,
    settings: Settings,
    executor: SkillExecutor,
    tasks: list[SkillTask],
    services: Services,
) -> tuple[Result, list[pytest.TestReport]]:
    """Carry out a mode and keep its result; beside it a report a task, for pytest.

    Raises:
        pytest.UsageError: the suite, the skill, the models or the run are not as they must be.
    """
    display = Display(config, settings)
    opened = _opened(config, mode, settings, executor, tasks, services, display)
    with _as_usage_errors(), opened as run:
        display.header(run)
        result = _carry_out(run, display)
        write_reports(run.directory.path, result)
    return result, list(task_reports(run, result))


def _carry_out(run: Run, display: Display) -> Result:
    """The mode's result; what stops a run before it has one is a result too."""
    try:
        return _mode_function(run.mode.name)(run, display)
    except StopRun as stop:
        status, reason = (
            ("interrupted" if stop.kind == "interrupted" else "unmeasured"),
            stop.reason,
        )
    except KeyboardInterrupt:
        status, reason = "interrupted", "interrupted"
    except JournalError as error:
        status, reason = "unmeasured", f"the journal could not be written: {error}"
    return run.result(status, reason, [], resume=run.resume_command)  # type: ignore[arg-type]


def _mode_function(name: str) -> Callable[[Run, Display], Result]:
    if name == "train":
        from pytest_skillopt.modes.train import train

        return train
    if name == "evaluate":
        from pytest_skillopt.modes.evaluate import evaluate

        return evaluate
    if name == "check":
        from pytest_skillopt.modes.check import check

        return check
    if name == "compare":
        from pytest_skillopt.modes.compare import compare

        return compare
    from pytest_skillopt.modes.aa import compare_with_itself

    return compare_with_itself


@contextlib.contextmanager
def _opened(
    config: pytest.Config,
    mode: Mode,
    settings: Settings,
    executor: SkillExecutor,
    tasks: list[SkillTask],
    services: Services,
    display: Display,
) -> Iterator[Run]:
    root = config.rootpath
    tasks, notes = split_tasks(tasks, settings.split, mode)
    documents = read_documents(root, tasks, settings, init=mode.init)
    home = Home(root / settings.dir)
    limits = Limits(Bounds.from_settings(settings))
    replies = Replies.open(home.cache, settings.cache)  # type: ignore[arg-type]
    services.open(limits, replies.cache)
    models = config.stash[MODELS] = Models(config, settings, throttle=limits, cache=replies)
    roles = _roles(models, mode, tasks)
    fingerprint = models.get("target").fingerprint if "target" in roles else ""
    home.make()
    directory = _run_directory(home, mode)
    journal = Journal(directory.journal)
    try:
        fingerprints = {role: models.get(role).fingerprint for role in roles}
        check_same_run(journal, describe_run(mode, settings, tasks, documents, fingerprints))
        for skill in documents:
            executor.add_skill(skill, skill_files(root / skill, root))
        sampler = Sampler(
            executor,
            tasks,
            JournalLedger(journal),
            model=fingerprint,
            limits=SamplerLimits(
                max_attempts=settings.max_attempts,
                max_rollouts=settings.max_rollouts,
                max_time=settings.max_time,
                breaker=settings.breaker,
                prefetch=settings.prefetch,
            ),
            on_rollout=display.rollout,
            on_version=directory.keep_version,
        )
        run = Run(
            mode=mode,
            settings=settings,
            root=root,
            home=home,
            directory=directory,
            journal=journal,
            limits=limits,
            models=models,
            sampler=sampler,
            tasks=tasks,
            documents=documents,
            command=command_line(config.invocation_params.args),
            fingerprint=fingerprint,
            notes=notes,
            roles={role: models.get(role).name for role in roles},
            simulated=any(models.get(role).simulated for role in roles),
        )
        run.notes += [
            f"{skill}: {warning}" for skill, doc in documents.items() for warning in doc.warnings
        ]
        if mode.resume is None and (earlier := home.unfinished(directory.name)):
            run.notes.append(f"run {earlier} ended early; --skillopt-resume={earlier} continues it")
        run.notes += [
            f"journal line {number} was corrupt and is measured again" for number in journal.corrupt
        ]
        yield run
    finally:
        models.close()
        journal.close()
        directory.close()


def _run_directory(home: Home, mode: Mode) -> RunDirectory:
    if mode.resume is None:
        return home.new_run()
    return RunDirectory.open(home.find(mode.resume))


def _roles(models: Models, mode: Mode, tasks: list[SkillTask]) -> list[Role]:
    """The roles that take part; each is configured, or the settings are at fault."""
    wanted = {role for task in tasks for role in task.roles}
    if mode.name == "train":
        wanted.add("optimizer")
    roles = [role for role in _ROLES if role in wanted]
    for role in roles:
        models.get(role)
    if models.settings.max_cost:
        check_prices([model_config(models.settings, role, os.environ) for role in roles])
    return roles


@contextlib.contextmanager
def _as_usage_errors() -> Iterator[None]:
    from pytest_skillopt.skill.document import SkillError
    from pytest_skillopt.suite.splits import SplitError

    try:
        yield
    except (SkillError, SplitError, RunError, ModelConfigError, CacheError) as error:
        raise pytest.UsageError(str(error)) from error


def fails_the_session(mode: Mode, result: Result) -> bool:
    """Whether the result alone makes pytest exit with 1."""
    if mode.name == "check" and result.skills:
        return result.status == "rejected" or (mode.strict and result.status == "unmeasured")
    return result.status == "unmeasured"
