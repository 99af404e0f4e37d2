"""What rollouts need of pytest's items and of their fixtures."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_skillopt.suite.internals.probe import Stash, runtestprotocol

if TYPE_CHECKING:
    from collections.abc import Callable

_PRUNE_ABOVE = 16


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


def crash_location(report: pytest.TestReport) -> tuple[str, int] | None:
    """Path and line (1-based) at which a report says the test crashed."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.path, crash.lineno) if crash is not None else None
