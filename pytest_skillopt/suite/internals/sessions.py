"""What rollouts need of pytest's sessions: their state, their hooks, and more than one of them."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_skillopt.suite.internals.probe import (
    FixtureManager,
    SetupState,
    assertion,
    catch_warnings_for_item,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_LOGGING_HOOKS = ("pytest_runtest_logreport", "pytest_exception_interact")
_COLLECTION_REPORTS = ("pytest_collectreport", "pytest_deselected", "pytest_collection_finish")
_RUNTEST_HOOKS = (
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_runtest_call",
    "pytest_runtest_teardown",
)
_SWITCHING_PLUGINS = (
    "assertion",
    "capturemanager",
    "faulthandler",
    "logging-plugin",
    "threadexception",
    "timeout",
    "unraisableexception",
    "warnings",
)


def setup_stack(session: pytest.Session) -> list[pytest.Item | pytest.Collector]:
    """The nodes that are set up now, outermost first."""
    return list(cast("Any", session)._setupstate.stack)


def tear_down_to(session: pytest.Session, item: pytest.Item | None) -> None:
    """Tear down every node that ``item`` does not descend from; everything for None."""
    cast("Any", session)._setupstate.teardown_exact(item)


def forget_setup(session: pytest.Session) -> None:
    """Give the session a new setup state, after an old one was left in disorder."""
    cast("Any", session)._setupstate = SetupState()


def take_stop(session: pytest.Session) -> str:
    """Why the session has been asked to stop, empty if it has not; and forget it."""
    state = cast("Any", session)
    reason = state._shouldstop or state._shouldfail
    state._shouldstop = state._shouldfail = False
    return str(reason or "")


@contextlib.contextmanager
def diverted_reports(
    config: pytest.Config, receive: Callable[[pytest.TestReport], None]
) -> Iterator[None]:
    """Send every logged report to ``receive`` and to nobody else.

    Subtests log their reports themselves, to the terminal, to junitxml, to ``-x`` and, in an xdist
    worker, to the controller, where a rollout has no place.
    """

    class _Receiver:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            receive(report)

    receiver = _Receiver()
    with _without(config, _LOGGING_HOOKS):
        config.pluginmanager.register(receiver)
        try:
            yield
        finally:
            config.pluginmanager.unregister(receiver)


def more_sessions(base: pytest.Session, count: int) -> list[pytest.Session]:
    """Collect ``count`` times more, quietly, each time into a session of its own.

    Every session has its own fixtures, set-up state and items, so that each can run a rollout while
    the others do. Modules are not imported again.

    Raises:
        pytest.UsageError: the suite is not the same when it is collected again.
    """
    config = base.config
    manager = config.pluginmanager
    fixtures = cast("Any", base)._fixturemanager
    manager.unregister(base)
    manager.unregister(fixtures)
    try:
        with _without(config, _COLLECTION_REPORTS), warnings.catch_warnings(record=True):
            return [_one_more_session(base) for _ in range(count)]
    finally:
        manager.register(base, "session")
        manager.register(fixtures, "funcmanage")


def _one_more_session(base: pytest.Session) -> pytest.Session:
    session: Any = pytest.Session.from_config(base.config)
    session._setupstate = SetupState()
    session._fixturemanager = FixtureManager(session)
    try:
        session.perform_collect()
    finally:
        base.config.pluginmanager.unregister(session)
        base.config.pluginmanager.unregister(session._fixturemanager)
    if {item.nodeid for item in session.items} != {item.nodeid for item in base.items}:
        raise pytest.UsageError(
            "--skillopt-lanes: the suite is not the same when it is collected again; "
            "parametrise from something that does not change"
        )
    return cast("pytest.Session", session)


@contextlib.contextmanager
def shared_process(session: pytest.Session) -> Iterator[None]:
    """While open, pytest leaves alone what all rollouts of a process share.

    Standard output, log handlers, warning filters, timers and the explanation of assertions are
    switched around each test, last in first out, which fails for tests that overlap. The filters
    and the explanations are switched once instead, the rest not at all.
    """
    config = session.config
    explain = assertion.pytest_runtest_protocol(cast("pytest.Item", _AnyItem(config)))
    filters = catch_warnings_for_item(
        config=config, ihook=config.hook, when="runtest", item=None, record=False
    )
    with _without(config, _RUNTEST_HOOKS, _SWITCHING_PLUGINS), filters:
        next(explain)
        try:
            yield
        finally:
            explain.close()


class _AnyItem:
    """What the explanation of assertions needs of an item, for no item in particular."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.ihook = config.hook


@contextlib.contextmanager
def _without(
    config: pytest.Config, hooks: Sequence[str], plugins: Sequence[str] | None = None
) -> Iterator[None]:
    """Take implementations of hooks away, those of the named plugins or all, and put them back."""
    manager = config.pluginmanager
    named = None if plugins is None else [p for p in map(manager.get_plugin, plugins) if p]
    saved = []
    for name in hooks:
        caller: Any = getattr(config.hook, name)
        saved.append((caller._hookimpls, list(caller._hookimpls)))
        caller._hookimpls[:] = [
            i for i in caller._hookimpls if named is not None and i.plugin not in named
        ]
    try:
        yield
    finally:
        for implementations, before in saved:
            added = [i for i in implementations if i not in before]
            implementations[:] = [*before, *added]
