"""Runs rollouts of collected items in this process, one after another.

Every rollout is a fresh copy of the item that goes through pytest's own protocol, hooks and all.
Function-scoped fixtures are anew each time, wider scopes stay, and what depends on the ``skill``
fixture is set up anew when the version under test changes. A rollout is not a test of the session:
its reports reach neither the terminal nor junitxml nor ``-x``.
See docs/decisions/workers.md.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import re
import shutil
import tempfile
import threading
import time
import warnings
from collections import OrderedDict
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt import fixtures
from pytest_skillopt.model.types import ModelError
from pytest_skillopt.skill.document import Document
from pytest_skillopt.skill.files import materialise
from pytest_skillopt.suite.context import OwnFault, Recorder, shorten
from pytest_skillopt.suite.folders import TemporaryFolder
from pytest_skillopt.suite.internals.items import (
    diverted_reports,
    finish_fixture,
    forget_setup,
    forget_subtests,
    fresh_copy,
    prune_finalizers,
    run_protocol,
    setup_stack,
    take_stop,
    tear_down_to,
)
from pytest_skillopt.suite.internals.probe import probe
from pytest_skillopt.suite.outcome import (
    Ending,
    Phase,
    RolloutTimeout,
    captured_output,
    classify,
    conclude,
)
from pytest_skillopt.suite.rollouts import Rollout
from pytest_skillopt.suite.tasks import node_id
from pytest_skillopt.untrusted import redact, secret_variables

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from pytest_skillopt.suite.rollouts import RolloutRequest


_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,16}\b")
_FOLDER = re.compile(r"(?<=[/\\]pytest-of-)([^/\\\s]+)([/\\])pytest-\d+(?:[/\\]popen-gw\d+)?")


def cleaned(rollout: Rollout) -> Rollout:
    """The rollout without secrets and without what is different in every process."""
    environ = secret_variables()

    def clean(text: str) -> str:
        return _same_in_every_process(redact(text, environ)) if text else ""

    error = rollout.error
    return replace(
        rollout,
        message=clean(rollout.message),
        feedback=clean(rollout.feedback),
        output=clean(rollout.output),
        transcript=tuple(replace(m, content=clean(m.content)) for m in rollout.transcript),
        error=replace(error, message=clean(error.message)) if error else None,
    )


def _same_in_every_process(text: str) -> str:
    if "0x" in text:
        text = _ADDRESS.sub("0x...", text)
    if "pytest-of-" in text:
        text = _FOLDER.sub(r"\1\2pytest-N", text)
    return text


_DIRECTORIES_KEPT = 16


class SkillVersions:
    """Content arrives once a process; a directory is made when a rollout first needs it.

    Nothing is read from the project, which may lie on another machine. Thread-safe.
    """

    def __init__(self, *, kept: int = 0) -> None:
        """``kept``: directories that may be in use at once, over those kept anyway."""
        self._kept = _DIRECTORIES_KEPT + kept
        self._files: dict[str, Mapping[str, bytes]] = {}
        self._contents: dict[tuple[str, str], bytes] = {}
        self._directories: OrderedDict[tuple[str, str], Path] = OrderedDict()
        self._root: TemporaryFolder | None = None
        self._lock = threading.Lock()

    def add_skill(self, skill: str, files: Mapping[str, bytes]) -> None:
        """Keep the files beside a skill's document, by path relative to it, with ``/``."""
        self._files[skill] = files

    def receive(self, kind: str, *told: Any) -> None:
        """Take a message ``skill`` or ``version`` of the wire."""
        if kind == "skill":
            skill, files = told
            self.add_skill(skill, {os.fsdecode(name): data for name, data in files.items()})
        else:
            self.add_version(*told)

    def add_version(self, skill: str, version: str, content: bytes) -> None:
        self._contents[skill, version] = content

    def content(self, skill: str, version: str) -> bytes:
        return self._contents[skill, version]

    def directory(self, skill: str, version: str) -> Path:
        """The directory that holds the skill with this version of its document."""
        key = skill, version
        with self._lock:
            if key not in self._directories:
                self._directories[key] = self._materialise(skill, version)
                self._drop_oldest()
            self._directories.move_to_end(key)
            return self._directories[key]

    def close(self) -> None:
        with self._lock:
            self._directories.clear()
            if self._root is not None:
                self._root.remove()
                self._root = None

    def _materialise(self, skill: str, version: str) -> Path:
        if self._root is None:
            # Not tmp_path_factory: xdist gives remote workers a base that is not on their machine.
            self._root = TemporaryFolder("skillopt-skills-")
        path = PurePosixPath(skill)
        # An agent may check that the directory is called like the skill.
        directory = Path(tempfile.mkdtemp(dir=self._root.path)) / (path.parent.name or "skill")
        document = Document.unpack(self._contents[skill, version])
        files = {**self._files.get(skill, {}), **dict(document.files)}
        materialise(directory, files, path.name, document.data)
        return directory

    def _drop_oldest(self) -> None:
        while len(self._directories) > self._kept:
            _, directory = self._directories.popitem(last=False)
            shutil.rmtree(directory.parent, ignore_errors=True)


SKILL_FIXTURE = "skill"
_OUTPUT_LIMIT = 16_000


class RolloutRunner:
    """Runs requests over the items of one pytest session, within ``rollouts_only``. Not
    thread-safe: lanes have a session each. UsageError where a private interface of pytest has
    changed."""

    def __init__(
        self, session: pytest.Session, versions: SkillVersions, *, worker: str = "main"
    ) -> None:
        probe()
        self._session = session
        self._versions = versions
        self._worker = worker
        self._items = {node_id(item): item for item in session.items}
        self._shown: tuple[str, str] | None = None
        self._skills: list[tuple[Any, pytest.FixtureRequest]] = []
        self._stray: list[str] = []

    @property
    def items(self) -> Mapping[str, pytest.Item]:
        return self._items

    def run(self, request: RolloutRequest, *, alone: bool = True) -> Rollout:
        """Run one rollout; whatever the test does is in what is returned. ``alone``: no other
        rollout runs in this process meanwhile."""
        started = time.perf_counter()
        try:
            collected = self._items[request.task]
            content = self._versions.content(request.skill, request.version)
            directory = self._versions.directory(request.skill, request.version)
        except KeyError as missing:
            ending = Ending.of_error("internal", f"{missing} was not collected here")
            return self._rollout(request, ending, started)
        except OSError as error:
            ending = Ending.of_error("internal", f"the skill could not be laid out: {error}")
            return self._rollout(request, ending, started)
        context = Recorder(request, self._session.config, directory, content)
        running = _Running(self._skills, alone)
        token = _RUNNING.set(running)
        try:
            with context.active():
                ending = self._run_item(fresh_copy(collected), running, context)
        finally:
            context.close()
            _RUNNING.reset(token)
        if context.fault is not None and ending.error is None:
            fault = classify(self._session.config, context.fault)
            ending = Ending("error", error=fault) if fault is not None else ending
        return self._rollout(request, ending, started, running, context)

    def close(self) -> list[str]:
        """Tear down every fixture that is still up; returns what went wrong between rollouts."""
        self._tear_down(None)
        stray, self._stray = self._stray, []
        return stray

    def _run_item(self, item: pytest.Item, running: _Running, context: Recorder) -> Ending:
        try:
            self._switch(item, context.request)
            # The next item is a copy: then exactly the function scope is torn down.
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=copy.copy(item))
        except pytest.exit.Exception as exception:
            self._start_over()
            return Ending.of_error("setup", f"the test stopped the run: {exception}", fatal=True)
        except RolloutTimeout as timeout:
            self._start_over()
            return Ending.of_error("timeout", str(timeout))
        except Exception as exception:
            self._start_over()
            return Ending.of_error("internal", f"{type(exception).__name__}: {exception}")
        except BaseException:
            self._start_over()
            raise
        finally:
            stop = take_stop(self._session)
            self._tidy(item, running)
        if stop:
            return Ending.of_error("setup", f"the test stopped the run: {stop}", fatal=True)
        return conclude(item.config, running.phases, context.refusals)

    def _switch(self, item: pytest.Item, request: RolloutRequest) -> None:
        """Tear down what the item does not share, and what depends on another version."""
        shown = request.skill, request.version
        if shown != self._shown:
            for fixturedef, subrequest in self._skills:
                self._between(lambda f=fixturedef, s=subrequest: finish_fixture(f, s))
            self._skills.clear()
            self._shown = shown
        stack = setup_stack(self._session)
        if stack != item.listchain()[: len(stack)]:
            self._tear_down(item)

    def _tear_down(self, item: pytest.Item | None) -> None:
        self._between(lambda: tear_down_to(self._session, item))

    def _between(self, step: Any) -> None:
        """What fails between two rollouts belongs to neither of them, but must be seen."""
        try:
            step()
        except Exception as exception:
            what = f"{type(exception).__name__}: {exception}"
            self._stray.append(f"teardown of a wider-scoped fixture failed: {what}")

    def _start_over(self) -> None:
        """Leave no half set-up state to the next rollout."""
        self._skills.clear()
        self._tear_down(None)
        if setup_stack(self._session):
            forget_setup(self._session)

    def _tidy(self, item: pytest.Item, running: _Running) -> None:
        prune_finalizers(item)
        forget_subtests(item)
        for path in running.temporary:
            shutil.rmtree(path, ignore_errors=True)

    def _rollout(
        self,
        request: RolloutRequest,
        ending: Ending,
        started: float,
        running: _Running | None = None,
        context: Recorder | None = None,
    ) -> Rollout:
        kept = context or Recorder(request)
        score = None
        if ending.outcome in ("passed", "failed"):
            passed = float(ending.outcome == "passed")
            score = passed if kept.soft_score is None else kept.soft_score
        stray, self._stray = self._stray, []
        output = [*stray, running.output() if running is not None else ""]
        rollout = Rollout(
            request=request,
            outcome=ending.outcome,
            score=score,
            message=ending.message,
            location=ending.location,
            feedback=kept.told,
            transcript=tuple(kept.transcript),
            usage=kept.used,
            judge_usage=kept.judge_used,
            reported=kept.reported,
            duration=time.perf_counter() - started,
            output=shorten("\n".join(output), _OUTPUT_LIMIT).strip(),
            worker=self._worker,
            skill_read=kept.skill_read,
            error=ending.error,
        )
        return cleaned(rollout)


@dataclass
class _Running:
    """What the hooks learn of the rollout in progress."""

    skills: list[tuple[Any, pytest.FixtureRequest]]
    alone: bool
    phases: list[Phase] = field(default_factory=list)
    temporary: list[Path] = field(default_factory=list)
    recorded: list[warnings.WarningMessage] = field(default_factory=list)

    def output(self) -> str:
        shown = dict.fromkeys(_shown(warning) for warning in self.recorded)
        return "\n".join([captured_output(self.phases), *shown])


def _shown(warning: warnings.WarningMessage) -> str:
    return f"{warning.filename}:{warning.lineno}: {warning.category.__name__}: {warning.message}"


_RUNNING: ContextVar[_Running | None] = ContextVar("skillopt_running", default=None)


@contextlib.contextmanager
def rollouts_only(config: pytest.Config) -> Iterator[None]:
    """While open, items that run are rollouts; ordinary tests cannot run meanwhile."""
    hooks = _RolloutHooks()
    with diverted_reports(config, _name_subtest):
        config.pluginmanager.register(hooks)
        try:
            yield
        finally:
            config.pluginmanager.unregister(hooks)


def _name_subtest(report: pytest.TestReport) -> None:
    """Subtests log their reports, with their name, right after they have been made."""
    running = _RUNNING.get()
    if running is not None and running.phases:
        running.phases[-1] = dataclasses.replace(running.phases[-1], subtest=report.head_line or "")


class _RolloutHooks:
    """Registered once a process; which rollout is meant is known by the thread that runs it."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        running = _RUNNING.get()
        if running is None:
            return None
        if running.alone:
            # The hook's wrappers have set the filters; what is recorded here is not kept for ever.
            with warnings.catch_warnings(record=True) as running.recorded:
                reports = run_protocol(item, nextitem)
        else:
            reports = run_protocol(item, nextitem)
        running.phases = list(_marked(running.phases, reports))
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        running = _RUNNING.get()
        if running is not None:
            running.phases.append(Phase(report, call.excinfo))
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        running = _RUNNING.get()
        try:
            value = yield
        except (Exception, pytest.fail.Exception) as error:
            ours = fixturedef.func.__module__ == fixtures.__name__
            if running is None or not ours or isinstance(error, ModelError):
                raise
            raise OwnFault(f"{fixturedef.argname}: {error}") from error
        if running is not None and fixturedef.argname == SKILL_FIXTURE:
            running.skills.append((fixturedef, request))
        elif running is not None and isinstance(value, Path) and fixturedef.argname == "tmp_path":
            running.temporary.append(value)
        return value


def _marked(phases: Iterable[Phase], reports: list[pytest.TestReport]) -> Iterator[Phase]:
    """Tell the three reports of the test itself from those of its subtests."""
    main = {id(report) for report in reports}
    for phase in phases:
        yield dataclasses.replace(phase, main=id(phase.report) in main)
