"""A session with a mode on, as the controlling process sees it.

Collects the tasks, hands an executor to the mode, shows what comes back. With pytest-xdist the
mode runs in a thread of its own while the main thread serves the workers; without, it runs in the
main thread. It knows no difference.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.run.directory import Home
from pytest_skillopt.services import Services
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.document import SkillError
from pytest_skillopt.suite.collect import collect_tasks
from pytest_skillopt.suite.locate import skill_locator

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_skillopt.mode import Mode
    from pytest_skillopt.report.result import Result
    from pytest_skillopt.suite.executor import SkillExecutor
    from pytest_skillopt.suite.tasks import SkillTask

_EXIT = {"unmeasured": pytest.ExitCode.TESTS_FAILED, "interrupted": pytest.ExitCode.INTERRUPTED}


def start(config: pytest.Config, mode: Mode) -> None:
    """Register what this process needs for the mode.

    Raises:
        pytest.UsageError: a setting that cannot be read.
    """
    settings = Settings.from_config(config)
    if hasattr(config, "workerinput"):
        from pytest_skillopt.worker import join

        join(config, settings)
    elif config.option.collectonly:
        from pytest_skillopt.modes.plan import Plan

        config.pluginmanager.register(Plan(config, mode, settings), "skillopt-plan")
    else:
        config.pluginmanager.register(Controller(config, mode, settings), "skillopt-controller")


def keep_tasks(config: pytest.Config, items: list[pytest.Item]) -> int:
    """Leave the skill tasks alone in ``items``; return how many others were deselected."""
    others = [item for item in items if item.get_closest_marker("skill_task") is None]
    if others:
        items[:] = [item for item in items if item.get_closest_marker("skill_task") is not None]
        config.hook.pytest_deselected(items=others)
    return len(others)


def describe_tasks(
    config: pytest.Config, settings: Settings, items: Sequence[pytest.Item]
) -> list[SkillTask]:
    """The tasks among the collected items.

    Raises:
        pytest.UsageError: a wrong marker, or no way to tell which skill a task is about.
    """
    try:
        return collect_tasks(items, skill_locator(config.rootpath, settings.skill))
    except SkillError as error:
        raise pytest.UsageError(str(error)) from None


class Controller:
    """Runs the mode in this process's session, or over the workers of pytest-xdist."""

    def __init__(self, config: pytest.Config, mode: Mode, settings: Settings) -> None:
        self._config = config
        self._mode = mode
        self._settings = settings
        self._result: Result | None = None
        self._distributed = False
        self._services = Services()

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """xdist has decided by now whether the session is distributed."""
        self._refuse_other_loops()
        if config.getoption("dist", "no") != "no":
            from pytest_skillopt.suite.workers import XdistRun

            self._distributed = True
            run = XdistRun(
                config,
                self._work,
                services=self._services.table,
                on_lost=self._services.forget,
                shared=self._shared_cache(),
            )
            config.pluginmanager.register(run, "skillopt-xdist")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        keep_tasks(self._config, items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if self._distributed:
            return None
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        tasks = describe_tasks(self._config, self._settings, session.items)
        if tasks:
            self._serve(session, tasks)
        return True

    def _serve(self, session: pytest.Session, tasks: list[SkillTask]) -> None:
        """Run the mode in this process, in lanes where they are asked for."""
        if self._settings.lanes > 1:
            from pytest_skillopt.suite.lanes import LanesExecutor

            executor: Any = LanesExecutor(
                session, lanes=self._settings.lanes, timeout=self._settings.timeout
            )
        else:
            from pytest_skillopt.suite.serial import SerialExecutor

            executor = SerialExecutor(session, timeout=self._settings.timeout)
        try:
            self._work(executor, tasks)
        finally:
            executor.close()

    def _work(self, executor: SkillExecutor, tasks: list[SkillTask]) -> None:
        from pytest_skillopt.modes.conduct import conduct

        self._result = conduct(
            self._config, self._mode, self._settings, executor, tasks, self._services
        )

    def _shared_cache(self) -> Path | None:
        if self._settings.cache == "off":
            return None
        return Home(self._config.rootpath / self._settings.dir).cache

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Any:
        """Set the exit status before the terminal's summary looks at it."""
        if self._result is not None and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = self._exit_status(self._result)
        return (yield)

    def _exit_status(self, result: Result) -> int:
        from pytest_skillopt.modes.conduct import fails_the_session

        if fails_the_session(self._mode, result):
            return pytest.ExitCode.TESTS_FAILED
        return _EXIT.get(result.status, pytest.ExitCode.OK)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """A task of a training is measured; it neither passes nor fails."""
        if getattr(report, "skillopt_measured", False):
            return ("measured" if report.when == "call" else "", "", "MEASURED")
        return None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._result is None:
            return
        from pytest_skillopt.report.terminal import lines

        terminalreporter.section("skillopt")
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        width = terminalreporter._tw.fullwidth
        verbose = self._config.option.verbose > 0
        for line in lines(self._result, width, encoding=encoding, verbose=verbose):
            terminalreporter.write_line(line.text, **line.markup)

    def _refuse_other_loops(self) -> None:
        if self._config.getoption("looponfail", False):
            raise pytest.UsageError(f"{self._mode.flag} does not go with --looponfail")
