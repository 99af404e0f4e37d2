"""Every private touch of pytest, pytest-xdist and execnet, each in one function.

``probe`` and ``probe_xdist`` are called at the start of a session that needs them and fail with a
message that names the versions, so that a future release breaks here, loudly, and nowhere else.
See docs/decisions/private-api.md for what is relied on and why nothing public does it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.metadata
import time
import warnings
from typing import TYPE_CHECKING, Any, cast

import execnet
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def _unsupported(missing: str, *packages: str) -> pytest.UsageError:
    versions = ", ".join(f"{name} {_version(name)}" for name in packages)
    return pytest.UsageError(
        f"pytest-skillopt {_version('pytest-skillopt')} cannot run rollouts with {versions}: "
        f"{missing} is not as expected. Install a version that pytest-skillopt supports."
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


try:
    from _pytest import assertion
    from _pytest.fixtures import FixtureManager
    from _pytest.runner import SetupState, runtestprotocol
    from _pytest.stash import Stash
    from _pytest.warnings import catch_warnings_for_item
except ImportError as missing:
    raise _unsupported(str(missing), "pytest") from None

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
_PRUNE_ABOVE = 16
_RESTART_TRIES = 5
_RESTART_PAUSE = 1.0
"""Seconds between two tries."""


# pytest


def probe(session: pytest.Session) -> None:
    """Check what rollouts need of pytest.

    Raises:
        pytest.UsageError: pytest has changed.
    """
    state = getattr(session, "_setupstate", None)
    caller = session.config.hook.pytest_runtest_logreport
    checks: list[tuple[str, bool]] = [
        ("Session._setupstate.stack", isinstance(getattr(state, "stack", None), dict)),
        ("SetupState.teardown_exact", hasattr(state, "teardown_exact")),
        ("HookCaller._hookimpls", isinstance(getattr(caller, "_hookimpls", None), list)),
        ("Stash._storage", isinstance(getattr(Stash(), "_storage", None), dict)),
    ]
    for item in session.items[:1]:
        checks.append(("Item._report_sections", hasattr(item, "_report_sections")))
        checks.append(("Item.keywords._markers", hasattr(item.keywords, "_markers")))
        if isinstance(item, pytest.Function):
            checks.append(("Function._initrequest", hasattr(item, "_initrequest")))
            checks.append(("Function._fixtureinfo", hasattr(item, "_fixtureinfo")))
    for name, there in checks:
        if not there:
            raise _unsupported(name, "pytest", "pluggy")


def fresh_copy(item: pytest.Item) -> pytest.Item:
    """A copy of a collected item that has not run yet: same node id, same parent, own state.

    Running the item itself again would keep its report sections, its ``user_properties``, the
    markers a test added and, for a method, the instance.
    """
    clone: Any = copy.copy(item)
    clone._report_sections = []
    clone.user_properties = list(item.user_properties)
    clone.own_markers = list(item.own_markers)
    clone.stash = clone._store = Stash()
    clone.stash._storage.update(cast("Any", item.stash)._storage)
    clone.keywords = copy.copy(item.keywords)
    clone.keywords.node = clone
    clone.keywords._markers = dict(cast("Any", item.keywords)._markers)
    if isinstance(item, pytest.Function):
        _forget_instance(clone)
        clone._initrequest()
    if hasattr(item, "dtest"):
        # A doctest clears the globals of its examples after the first run.
        clone.dtest = copy.copy(item.dtest)
        clone.dtest.globs = dict(item.dtest.globs)
    return cast("pytest.Item", clone)


def _forget_instance(clone: Any) -> None:
    if getattr(clone, "_instance", None) is not None:
        del clone._instance
        clone._obj = None
    elif isinstance(clone.parent, pytest.Class):
        clone._obj = None


def run_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    """Set up, call and tear down, without logging the reports."""
    return runtestprotocol(item, log=False, nextitem=nextitem)


def setup_stack(session: pytest.Session) -> list[pytest.Item | pytest.Collector]:
    """The nodes that are set up now, outermost first."""
    return list(cast("Any", session)._setupstate.stack)


def tear_down_to(session: pytest.Session, item: pytest.Item | None) -> None:
    """Tear down every node that ``item`` does not descend from; everything for None."""
    cast("Any", session)._setupstate.teardown_exact(item)


def forget_setup(session: pytest.Session) -> None:
    """Give the session a new setup state, after an old one was left in disorder."""
    cast("Any", session)._setupstate = SetupState()


def finish_fixture(fixturedef: Any, request: pytest.FixtureRequest) -> None:
    """Tear a live fixture down, after all fixtures that depend on it."""
    fixturedef.finish(request)


def abandon_setup(fixturedef: Any) -> None:
    """Let a fixture that is not going to be set up after all be asked for again."""
    fixturedef._finalizers.clear()


def fixture_of(request: pytest.FixtureRequest) -> Any:
    """The definition of the fixture that was given this request."""
    return cast("Any", request)._fixturedef


def prune_finalizers(item: pytest.Item) -> None:
    """Drop what finished fixtures of this item left behind on fixtures of wider scopes.

    pytest appends one finalizer to every wider-scoped fixture for each function-scoped one that
    used it, and keeps it, with the request, the item and its output, until that scope ends.
    """
    definitions = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    for fixturedef in [d for defs in definitions.values() for d in defs]:
        finalizers = fixturedef._finalizers
        if len(finalizers) > _PRUNE_ABOVE:
            finalizers[:] = [f for f in finalizers if not _is_spent(f)]


def _is_spent(finalizer: Callable[[], object]) -> bool:
    if not isinstance(finalizer, functools.partial):
        return False
    owner = getattr(finalizer.func, "__self__", finalizer)
    return getattr(owner, "cached_result", owner) is None


def empty(item: pytest.Item) -> None:
    """Let go of the output of an item that something may still refer to."""
    spent: Any = item
    spent._report_sections, spent.user_properties = [], []


def forget_subtests(item: pytest.Item) -> None:
    """Forget the failed subtests that pytest counts by node id, for the ordinary reports."""
    try:
        from _pytest.subtests import failed_subtests_key
    except ImportError:  # before pytest 9
        return
    counts = cast("dict[object, int]", item.config.stash[failed_subtests_key])
    counts.pop(getattr(item, "id", item.nodeid), None)
    counts.pop(item.nodeid, None)


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


# lanes: several sessions over one configuration


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


def crash_location(report: pytest.TestReport) -> tuple[str, int] | None:
    """Path and line (1-based) at which a report says the test crashed."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.path, crash.lineno) if crash is not None else None


def node_id(item: pytest.Item) -> str:
    """The node id as in a run without xdist, whose ``--dist=loadgroup`` appends ``@group``."""
    if not item.config.getoption("loadgroup", False):
        return item.nodeid
    groups = {_group_name(mark) for mark in item.iter_markers("xdist_group")}
    return item.nodeid.removesuffix("@" + "_".join(sorted(groups)))


def _group_name(mark: pytest.Mark) -> str:
    return str(mark.args[0] if mark.args else mark.kwargs.get("name", "default"))


# pytest-xdist and execnet


def probe_xdist(node: Any) -> None:
    """Check what the warm workers need of a node of xdist's controller.

    Raises:
        pytest.UsageError: xdist or execnet has changed.
    """
    checks = [
        ("WorkerController.notify_inproc", hasattr(node, "notify_inproc")),
        ("WorkerController.shutdown", hasattr(node, "shutdown")),
        ("WorkerController.workerinput", isinstance(getattr(node, "workerinput", None), dict)),
        ("Gateway.newchannel", hasattr(getattr(node, "gateway", None), "newchannel")),
    ]
    for name, there in checks:
        if not there:
            raise _unsupported(name, "pytest-xdist", "execnet")


def wake_controller(node: Any) -> None:
    """Make xdist's loop look at its scheduler, from any thread.

    The event is passed on to ``Scheduling.mark_test_complete`` unread.
    """
    node.notify_inproc("runtest_protocol_complete", node=node, item_index=None, duration=0.0)


def wrap_shutdown(node: Any, around: Callable[[Callable[[], None]], None]) -> None:
    """Have ``around(shutdown)`` called where xdist tells a worker to shut down.

    What xdist says reaches its own loop in the worker, never ours.
    """
    node.shutdown = functools.partial(around, node.shutdown)


def adopt_restarts(config: pytest.Config, tell: Callable[[str], None]) -> None:
    """Lift xdist's bound of restarted workers, and survive a worker that cannot be restarted.

    The bound guards against workers that never come up, which the caller counts itself; a training
    may lose many in its course. A server that an operator restarts is waited for; without it xdist
    would end the session although other workers live.

    Args:
        tell: told when a worker stays away.
    """
    dsession: Any = config.pluginmanager.get_plugin("dsession")
    for name in ("_max_worker_restart", "_clone_node"):
        if not hasattr(dsession, name):
            raise _unsupported(f"DSession.{name}", "pytest-xdist")
    if config.getoption("maxworkerrestart", None) is None:
        dsession._max_worker_restart = None
    dsession._clone_node = functools.partial(_clone_patiently, dsession._clone_node, tell)


def _clone_patiently(
    clone: Callable[[Any], Any], tell: Callable[[str], None], node: Any
) -> Any | None:
    error: Exception | None = None
    for _ in range(_RESTART_TRIES):
        try:
            return clone(node)
        except (OSError, execnet.HostNotFound) as failed:
            error = failed
            time.sleep(_RESTART_PAUSE)
    tell(f"{node.gateway.id} cannot be started again ({error}), the others go on without it")
    return None


def worker_channel(config: pytest.Config) -> Any:
    """The channel that the controller put into this worker's input; None elsewhere."""
    return getattr(config, "workerinput", {}).get("skillopt_channel")


def worker_input(config: pytest.Config) -> dict[str, Any]:
    return cast("dict[str, Any]", getattr(config, "workerinput", {}))
