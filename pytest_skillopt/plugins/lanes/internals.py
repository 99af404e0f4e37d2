"""Private interfaces of pytest that lanes use."""

from __future__ import annotations

import contextlib
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_skillopt.internals import SetupState, unsupported, without

if TYPE_CHECKING:
    from collections.abc import Iterator

try:
    from _pytest import assertion
    from _pytest.fixtures import FixtureManager
    from _pytest.warnings import catch_warnings_for_item
except ImportError as missing:
    raise unsupported(str(missing), "pytest") from None

NAMES: dict[type, str] = {
    pytest.Session: "_setupstate _fixturemanager perform_collect",
    pytest.FixtureDef: "_finalizers",
}
"""Private names that are used here, as in ``internals.py``."""

_COLLECTION_REPORTS = ("pytest_collectreport", "pytest_deselected", "pytest_collection_finish")
_RUNTEST_HOOKS = (
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_runtest_call",
    "pytest_runtest_teardown",
    # Allure finds in them the rollout that the hooks above have begun, by its node ID.
    "pytest_runtest_makereport",
    "pytest_fixture_setup",
    "pytest_fixture_post_finalizer",
)
_SWITCHING_PLUGINS = (
    "allure_listener",
    "assertion",
    "capturemanager",
    "faulthandler",
    "logging-plugin",
    "threadexception",
    "timeout",
    "unraisableexception",
    "warnings",
)


def abandon_setup(fixturedef: Any) -> None:
    fixturedef._finalizers.clear()


def more_sessions(base: pytest.Session, count: int) -> list[pytest.Session]:
    """Collect ``count`` more sessions silently, with separate fixtures, set-up state and items.

    Modules are not imported again.

    Raises:
        UsageError: a session has other items.
    """
    config = base.config
    manager = config.pluginmanager
    fixtures = cast("Any", base)._fixturemanager
    manager.unregister(base)
    manager.unregister(fixtures)
    try:
        with without(config, _COLLECTION_REPORTS), warnings.catch_warnings(record=True):
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
            "--skillopt-lanes: a second collection of the suite found other tests; parametrise "
            "from values that do not change"
        )
    return cast("pytest.Session", session)


@contextlib.contextmanager
def shared_process(session: pytest.Session) -> Iterator[None]:
    """Keep pytest from switching process-wide state around each test while open.

    It switches standard output, log handlers, warning filters, timers and the explanation of
    assertions last in first out, which fails for overlapping tests. The filters and explanations
    are switched once instead, the rest not at all.
    """
    config = session.config
    no_item: Any = SimpleNamespace(config=config, ihook=config.hook)
    explain = assertion.pytest_runtest_protocol(no_item)
    filters = catch_warnings_for_item(
        config=config, ihook=config.hook, when="runtest", item=None, record=False
    )
    with without(config, _RUNTEST_HOOKS, _SWITCHING_PLUGINS), filters:
        next(explain)
        try:
            yield
        finally:
            explain.close()
