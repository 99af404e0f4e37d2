"""The controlling process of a session with a mode on.

With pytest-xdist the mode runs in its own thread while the main thread serves the workers;
without, it runs in the main thread. The mode itself is the same in both cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt import words
from pytest_skillopt.settings import Settings
from pytest_skillopt.tasks.task import LEFT_OUT, describe_tasks, keep_tasks
from pytest_skillopt.untrusted import logger, no_command, protect_named

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pytest_skillopt.mode import Mode
    from pytest_skillopt.rollouts.executor import WorkersExecutor
    from pytest_skillopt.rollouts.workers import XdistRun
    from pytest_skillopt.run.result import Result
    from pytest_skillopt.tasks.task import SkillTask

_LOG = logger(__name__)


def start(config: pytest.Config, mode: Mode) -> None:
    protect_options(config)
    settings = Settings.from_config(config)
    if hasattr(config, "workerinput"):
        from pytest_skillopt.model.remote import RemoteModels
        from pytest_skillopt.model.roles import MODELS
        from pytest_skillopt.rollouts.worker_loop import WorkerLoop, link

        config.stash[MODELS] = RemoteModels(config, settings, link(config).ask)
        config.pluginmanager.register(WorkerLoop(config, settings), "skillopt-worker")
    elif config.option.collectonly:
        from pytest_skillopt.modes.plan import Plan

        config.pluginmanager.register(Plan(config, mode, settings), "skillopt-plan")
    else:
        config.option.maxfail = 0  # all is measured before the first task is reported
        config.pluginmanager.register(Controller(config, mode, settings), "skillopt-controller")


def protect_options(config: pytest.Config) -> None:
    """Redact the values of options and of ini keys whose names are those of secrets."""
    given = (word.partition("=") for word in config.getoption("override_ini") or ())
    values = {**vars(config.option), **{name.strip(): value for name, _, value in given}}
    # Before pytest 9 under another name, and as plain values.
    ini = config._inicfg if hasattr(config, "_inicfg") else config.inicfg
    for name, found in ini.items():
        values.setdefault(name, getattr(found, "value", found))
    protect_named({n: value for n, value in values.items() if not n.startswith("skillopt_")})


class Controller:
    """Run the mode over this session's items or over xdist's workers, and report its result."""

    def __init__(self, config: pytest.Config, mode: Mode, settings: Settings) -> None:
        self._config = config
        self._mode = mode
        self.settings = settings
        self._workers: XdistRun | None = None
        self.result: Result | None = None
        """Result of the mode; None before its end."""
        self._reports: list[pytest.TestReport] = []
        self._is_idle = False
        """True if the suite was collected and has no task."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Choose this process or workers for the rollouts; xdist has read its options by now."""
        from pytest_skillopt.modes.opening import refuse_early

        refuse_early(config, self._mode, self.settings)
        if config.getoption("dist", "no") == "no":
            if self.settings.lanes > 1:
                raise pytest.UsageError("several rollouts at once need a worker: add -n 1")
            config.pluginmanager.register(_InProcess(config, self.settings, self._work))
            return
        from pytest_skillopt.internals import probe, xdist_names
        from pytest_skillopt.rollouts.workers import XdistRun

        probe(xdist_names(), ("pytest-xdist",))
        self._workers = XdistRun(config, self._work, self.settings.timeout)
        config.pluginmanager.register(self._workers, "skillopt-xdist")

    def _work(self, executor: WorkersExecutor, tasks: list[SkillTask]) -> None:
        _LOG.info("%s begins with %d tasks", self._mode.flag, len(tasks))
        self._is_idle = not tasks
        if tasks:
            from pytest_skillopt.modes import conduct

            self.result, self._reports = conduct(
                self._config, self._mode, self.settings, executor, tasks
            )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Report each task once, as a test, and settle the exit status.

        After the loop pytest looks for failures; rollouts are not tests.
        """
        value = yield
        for report in self._reports:
            self._config.hook.pytest_runtest_logreport(report=report)
        if terminal := self._config.pluginmanager.get_plugin("terminalreporter"):
            terminal.stats.pop("", None)  # pytest searches this list once for each failure
        if self.result is not None:
            from pytest_skillopt.modes import fails_the_session

            if self.result.status == "interrupted":
                raise KeyboardInterrupt
            session.testsfailed += fails_the_session(self._mode, self.result)
        return value

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Show a task of a training as measured: it neither passes nor fails."""
        if getattr(report, "skillopt_measured", False):
            return ("measured" if report.when == "call" else "", "", "MEASURED")
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.result is not None:
            from pytest_skillopt.report.terminal import print_report

            print_report(self._config, terminalreporter, self.result)
        self._tell_left_out(terminalreporter)

    def _tell_left_out(self, terminalreporter: pytest.TerminalReporter) -> None:
        left_out = self._config.stash.get(LEFT_OUT, None)
        if left_out is None:
            return  # the session ended before
        if self._workers is not None and left_out.count:
            # xdist does not pass on the number of tests that its workers have deselected.
            others = [SimpleNamespace() for _ in range(left_out.count)]
            terminalreporter.stats.setdefault("deselected", []).extend(others)
        for sentence in words.left_out(left_out, is_idle=self._is_idle):
            terminalreporter.write_line(no_command(f"skillopt: {sentence}"))


@dataclass(eq=False, frozen=True)
class _InProcess:
    """Run the rollouts in this process, one after another."""

    config: pytest.Config
    settings: Settings
    work: Callable[[WorkersExecutor, list[SkillTask]], None]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        keep_tasks(self.config, items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        tasks = describe_tasks(self.config, self.settings, session.items)
        from pytest_skillopt.rollouts.executor import write_stray
        from pytest_skillopt.rollouts.runner import SerialExecutor

        executor = SerialExecutor(session, timeout=self.settings.timeout)
        try:
            self.work(executor, tasks)
        finally:
            write_stray(self.config, executor.close())
        return True
