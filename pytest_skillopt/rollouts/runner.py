"""Run rollouts of collected items in this process, one after another.

Each rollout runs a fresh copy of the item through pytest's own protocol with all hooks.
Function-scoped fixtures are set up for each rollout, wider scopes stay, and fixtures that depend on
``skill`` are set up again when the version under test changes. A rollout is not a test of the
session: its reports reach neither the terminal nor junitxml nor ``-x``.
See docs/decisions/workers.md.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from pytest_skillopt import internals
from pytest_skillopt.model.types import ModelError
from pytest_skillopt.processes import kill_descendants
from pytest_skillopt.rollouts.context import OwnFault, Recorder
from pytest_skillopt.rollouts.executor import WorkersExecutor, cheapest
from pytest_skillopt.rollouts.folders import remove_folder
from pytest_skillopt.rollouts.idle import no_network
from pytest_skillopt.rollouts.interrupts import alarm, handle, settled
from pytest_skillopt.rollouts.outcome import (
    OUTPUT_LIMIT,
    Phase,
    RolloutTimeout,
    captured_output,
    classify,
    conclude,
    line_in_test,
)
from pytest_skillopt.rollouts.rollout import InfraError, Rollout
from pytest_skillopt.untrusted import hide_values, redact, secret_variables, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from pytest_skillopt.rollouts.folders import SkillVersions
    from pytest_skillopt.rollouts.rollout import RolloutRequest


_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,16}\b")
_FOLDER = re.compile(r"(?<=[/\\]pytest-of-)([^/\\\s]+)([/\\])pytest-\d+(?:[/\\]popen-gw\d+)?")


def cleaned(rollout: Rollout, gone: Mapping[str, str] | None = None) -> Rollout:
    """Remove secrets and texts that differ between processes (addresses, temporary folders).

    Args:
        rollout: the rollout.
        gone: names of secrets by their values, which the environment holds no longer.
    """
    environ = secret_variables()
    earlier = [{name: value} for value, name in (gone or {}).items()]

    def clean(text: str) -> str:
        text = redact(text, environ) if text else ""
        for variable in earlier:
            text = hide_values(text, variable)
        if "0x" in text:
            text = _ADDRESS.sub("0x...", text)
        if "pytest-of-" in text:
            text = _FOLDER.sub(r"\1\2pytest-N", text)
        return text

    return rollout.rewritten(clean)


class RolloutRunner:
    """Run requests over the items of one pytest session, within ``rollouts_only``.

    Not thread-safe: each thread needs its own session.

    Raises:
        UsageError: a private interface of pytest has changed.
    """

    def __init__(
        self, session: pytest.Session, versions: SkillVersions, *, worker: str = "main"
    ) -> None:
        internals.probe()
        _watch_process()
        self.session = session
        self._versions = versions
        self._worker = worker
        self.items = {item.nodeid: item for item in session.items}
        self._shown: tuple[str, str] | None = None
        self._skills: list[pytest.FixtureRequest] = []
        """Requests for which the fixture ``skill`` is set up."""
        self._stray: list[str] = []

    def beside(self, session: pytest.Session) -> RolloutRunner:
        """Make a runner of the same versions for another session of this process."""
        return RolloutRunner(session, self._versions, worker=self._worker)

    def run(self, request: RolloutRequest, running: Running | None = None) -> Rollout:
        """Run one rollout; exceptions of the test and of this package become part of it."""
        try:
            return self._run(request, running or Running())
        except pytest.UsageError as error:
            # A hook of a plugin is at fault: to try again costs calls and ends likewise.
            return Rollout.of_error(request, "internal", str(error), fatal=True)
        except Exception:
            # Raised, it would end the worker together with the rollouts beside it.
            return Rollout.of_error(request, "internal", traceback.format_exc())

    def close(self) -> list[str]:
        """Tear down all fixtures; return the errors that occurred between rollouts."""
        self._between(internals.tear_down_to, self.session, None)
        return self._stray

    def _run(self, request: RolloutRequest, running: Running) -> Rollout:
        started = time.perf_counter()
        recorder = Recorder(request)
        try:
            collected = self.items[request.task]
            content = self._versions.content(request.skill, request.version)
            directory = self._versions.directory(request.skill, request.version)
        except KeyError as missing:
            rollout = Rollout.of_error(request, "internal", f"{missing} was not collected here")
        except OSError as error:
            said = f"the skill could not be written to a temporary folder: {error}"
            rollout = Rollout.of_error(request, "internal", said)
        else:
            config = self.session.config
            if "randomly_seed" in config.option:  # With one seed, all rollouts of a test are alike.
                config.option.randomly_seed = request.seed
            recorder = Recorder(request, config, directory, content)
            rollout = self._run_item(internals.fresh_copy(collected), running, recorder)
        stray = self._stray
        self._stray = []
        score = recorder.soft_score if rollout.measured else None
        if rollout.measured and score is None:
            score = float(rollout.passed)
        output = shorten("\n".join([*stray, running.output()]), OUTPUT_LIMIT).strip()
        rollout = replace(
            rollout,
            score=score,
            feedback=recorder.told,
            transcript=tuple(recorder.transcript),
            usage=recorder.used,
            other_usage=recorder.others_used,
            reported=recorder.reported,
            duration=time.perf_counter() - started,
            output=output,
            worker=self._worker,
            skill_read=recorder.skill_read,
        )
        return cleaned(rollout, running.secrets)

    def _run_item(self, item: pytest.Item, running: Running, recorder: Recorder) -> Rollout:
        request = recorder.request
        running.idle = request.is_idle
        token = RUNNING.set(running)
        try:
            with recorder.active():
                self._switch(item, request)
                # With a copy as the next item, exactly the function scope is torn down.
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=copy.copy(item))
                self._skills += running.skills
        except BaseException as exception:
            self._start_over()
            if isinstance(exception, pytest.exit.Exception):
                return _stopped(request, exception)
            if isinstance(exception, RolloutTimeout):
                return Rollout.of_error(request, "timeout", str(exception))
            if isinstance(exception, Exception):
                said = f"{type(exception).__name__}: {exception}"
                return Rollout.of_error(request, "internal", said)
            raise
        finally:
            stop = internals.take_stop(self.session)
            RUNNING.reset(token)
            internals.prune_finalizers(item)
            internals.forget_subtests(item)
            for path in running.temporary:
                remove_folder(path)
        if stop:
            return _stopped(request, stop)
        rollout = conclude(request, item.config, running.phases, recorder)
        if recorder.fault is not None and rollout.error is None:
            fault = classify(item.config, recorder.fault)
            return Rollout(request, "error", error=fault) if fault is not None else rollout
        return rollout

    def _switch(self, item: pytest.Item, request: RolloutRequest) -> None:
        """Tear down fixtures that the item does not share or that depend on another version."""
        shown = request.skill, request.version
        if shown != self._shown:
            for asked in self._skills:
                self._between(internals.finish_fixture, asked)
            self._skills.clear()
            self._shown = shown
        self._between(internals.tear_down_to, self.session, item)

    def _between(self, step: Callable[..., object], *arguments: object) -> None:
        """Run a step between two rollouts; its failure belongs to neither, but is reported."""
        try:
            step(*arguments)
        except (Exception, pytest.fail.Exception) as exception:
            what = redact(f"{type(exception).__name__}: {exception}")
            said = f"teardown of a wider-scoped fixture failed: {what}"
            self._stray.append(shorten(said, OUTPUT_LIMIT))

    def _start_over(self) -> None:
        """Discard half-done set-up before the next rollout."""
        self._skills.clear()
        self._between(internals.tear_down_to, self.session, None)
        internals.forget_setup(self.session)


def _stopped(request: RolloutRequest, reason: object) -> Rollout:
    return Rollout.of_error(request, "setup", f"the test stopped the run: {reason}", fatal=True)


class ConcurrentRunner(Protocol):
    """Runs several rollouts at once and delivers each; a plugin makes it."""

    def put(self, request: RolloutRequest) -> None:
        """Queue a request."""

    def close(self) -> list[str]:
        """Tear down all fixtures; return the errors that occurred between rollouts."""


@dataclass
class Running:
    """The state that the hooks collect for the current rollout."""

    idle: bool = False
    """True if the agent does nothing and the test has no network."""
    exclusive: bool = True
    """True if no other rollout runs in this process meanwhile."""
    skills: list[pytest.FixtureRequest] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    temporary: list[Path] = field(default_factory=list)
    recorded: list[warnings.WarningMessage] = field(default_factory=list)
    printed: str = ""
    """Its output while it shares the process, when pytest captures nothing."""
    secrets: dict[str, str] = field(default_factory=dict)
    """Names, by their values, of the secrets that it has put into the environment."""
    has_begun: bool = False
    """True if the test has been called."""
    pid: int = field(default_factory=os.getpid)

    def begin(self) -> None:
        """Note that the test is called, and refuse a second call.

        Plugins that retry, such as pytest-retry, call a test that failed again within its rollout;
        passing then, it would count as passed.
        """
        if self.has_begun:
            pytest.fail("a rollout is not retried: its first outcome counts", pytrace=False)
        self.has_begun = True

    def output(self) -> str:
        shown = dict.fromkeys(
            f"{w.filename}:{w.lineno}: {w.category.__name__}: {w.message}" for w in self.recorded
        )
        return "\n".join([captured_output(self.phases), *shown, self.printed])


RUNNING: ContextVar[Running | None] = ContextVar("skillopt_running", default=None)


@functools.cache
def _watch_process() -> None:
    """Note the secrets that rollouts put into the environment; refuse to replace this process.

    ``monkeypatch`` and ``mock.patch.dict`` have taken secrets away when the rollout is cleaned. An
    audit hook cannot be removed.
    """

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("os.putenv", "os.exec") or (running := RUNNING.get()) is None:
            return
        if event == "os.exec":
            _refuse_end("os.exec*", running.pid)
            return
        name, value = map(os.fsdecode, arguments)
        if secret_variables({name: value}):
            running.secrets[value] = name

    sys.addaudithook(watch)


def _refuse_end(call: str, process: int) -> None:
    """Raise OwnFault for a test that ends pytest's process: with status 0 it would be a pass.

    A child that the test has forked has another id, and may end so.
    """
    if process == os.getpid():
        raise OwnFault(
            f"the test ends pytest's own process by {call}: start a child process for it"
        )


@contextlib.contextmanager
def _without_exit() -> Iterator[None]:
    """Refuse ``os._exit`` in this process, also in threads of a test."""
    leave = os._exit
    process = os.getpid()

    def refuse(status: int) -> None:
        _refuse_end("os._exit", process)
        leave(status)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "_exit", refuse)
        yield


@contextlib.contextmanager
def rollouts_only(config: pytest.Config) -> Iterator[None]:
    """Treat all items that run while open as rollouts."""
    hooks = _RolloutHooks()
    told = internals.without(config, ("pytest_runtest_logreport", "pytest_exception_interact"))
    # It would set up the fixtures of each failed test anew, which may call models.
    repeating = ("pytest_runtest_protocol", "pytest_runtest_makereport")
    with told, internals.without(config, repeating, ("pytest-retry",)):
        config.pluginmanager.register(hooks)
        try:
            yield
        finally:
            config.pluginmanager.unregister(hooks)


class _RolloutHooks:
    """Hooks of all rollouts in a process; ``RUNNING`` identifies the thread's rollout."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        running = RUNNING.get()
        if running is None:
            return None
        if running.exclusive:
            # The hook's wrappers have set the filters; record the warnings for this rollout only.
            with warnings.catch_warnings(record=True) as running.recorded:
                internals.run_protocol(item, nextitem)
        else:
            internals.run_protocol(item, nextitem)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        running = RUNNING.get()
        if running is not None:
            running.begin()
        with no_network() if running and running.idle else contextlib.nullcontext():
            return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> object:
        """Have pytest-timeout interrupt the test: its method ``thread`` would end the session.

        There is one timer in a process: that of ``skillopt_timeout`` stays if it ends first.
        """
        if 0 < signal.getitimer(signal.ITIMER_REAL)[0] < settings.timeout:
            return True
        plugin: Any = item.config.pluginmanager.get_plugin("timeout")
        return plugin.pytest_timeout_set_timer(item, settings._replace(method="signal"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        running = RUNNING.get()
        if running is not None and running.pid != os.getpid():
            os._exit(1)  # A child that the test forked: it would be a second session.
        report = yield
        if running is not None:
            line = line_in_test(item, call.excinfo)
            is_xfail = item.get_closest_marker("xfail") is not None
            running.phases.append(Phase(report, call.excinfo, line, is_xfail))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a subtest's name: it logs its report right after making it.

        No other plugin gets the report: not the terminal, junitxml, ``-x`` or xdist's controller.
        """
        running = RUNNING.get()
        if running is not None and running.phases:
            running.phases[-1].subtest = report.head_line or ""

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        running = RUNNING.get()
        try:
            value = yield
        except (Exception, pytest.fail.Exception) as error:
            ours = fixturedef.func.__module__.startswith("pytest_skillopt.")
            if running is None or not ours or isinstance(error, ModelError):
                raise
            name = fixturedef.argname.removeprefix("_skillopt_")
            raise OwnFault(f"{name}: {error}") from error
        if running is not None and fixturedef.argname == "_skillopt_skill":
            running.skills.append(request)
        elif running is not None and isinstance(value, Path) and fixturedef.argname == "tmp_path":
            running.temporary.append(value)
        return value


_INSIST = 5.0
"""Interval in seconds at which a rollout that swallows its interrupt is interrupted again."""


class SerialExecutor(WorkersExecutor):
    """Run a queued request whenever ``next`` is called.

    The time-out (in seconds; 0: none) can only interrupt Python code of the main thread, not a C
    extension; workers (``-n 1``) are ended in any case.
    """

    def __init__(self, session: pytest.Session, *, timeout: float) -> None:
        super().__init__()
        self._runner = RolloutRunner(session, self._versions)
        self._timeout = timeout
        self._last: RolloutRequest | None = None
        self._open = contextlib.ExitStack()
        self._open.enter_context(rollouts_only(session.config))
        self._open.enter_context(_without_exit())
        for signum in (signal.SIGINT, signal.SIGTERM):
            handle(session.config, signum, self._interrupt)

    def _interrupt(self, signum: int, frame: object) -> None:
        if signum == signal.SIGTERM and self.ended:
            return  # a CI sends it after SIGINT, while the report is written
        self.stop("the session was interrupted")
        raise KeyboardInterrupt

    def next(self) -> Rollout:
        if not self._pending:
            raise RuntimeError("no rollout is queued")
        request = self._last = cheapest(self._pending, self._last)
        late: list[str] = []
        try:
            with _interrupted_after(self._timeout, late):
                rollout = settled(lambda: self._runner.run(request))
        except RolloutTimeout:  # raised between the rollout's end and the timer's
            rollout = Rollout.of_error(request, "timeout", late[0])
        # A test may catch either interrupt, as an event loop does, and then end in any way: the
        # rollout is not counted as an answer.
        if self.ended:
            raise KeyboardInterrupt
        if late and rollout.error is None:
            fault = InfraError("timeout", late[0])
            return replace(rollout, outcome="error", score=None, error=fault)
        return rollout

    def close(self) -> list[str]:
        """Tear down all fixtures; return the errors that occurred between rollouts."""
        self.stop("the session has ended")
        stray = self._runner.close()
        self._open.close()
        self._versions.close()
        return stray


@contextlib.contextmanager
def _interrupted_after(seconds: float, late: list[str]) -> Iterator[None]:
    """Raise ``RolloutTimeout`` after a number of seconds, and add its message to ``late``."""
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(signum: int, frame: object) -> None:
        late.append(f"took longer than skillopt_timeout={seconds:g} seconds")
        kill_descendants(younger_than=seconds + _INSIST)
        raise RolloutTimeout(late[0])

    with alarm(seconds, _INSIST, interrupt):
        yield
