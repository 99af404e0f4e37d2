"""Private interfaces of pytest's items, fixtures and session that rollouts need."""

from __future__ import annotations

import contextlib
import copy
import functools
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_skillopt.suite.internals.probe import SetupState, Stash, runtestprotocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_PRUNE_ABOVE = 16


def fresh_copy(item: pytest.Item) -> pytest.Item:
    """Copy a collected item as if it had not run: same node id, same parent, separate state."""
    clone: Any = copy.copy(item)
    clone._report_sections = []
    clone.user_properties = list(item.user_properties)
    clone.own_markers = list(item.own_markers)
    clone.stash = clone._store = Stash()
    clone.stash._storage.update(cast("Any", item.stash)._storage)
    clone.keywords = copy.copy(item.keywords)
    clone.keywords.node = clone
    clone.keywords._markers = dict(cast("Any", item.keywords)._markers)
    clone._repr_failure_py = _last_line
    if isinstance(item, pytest.Function):
        clone.__dict__.pop("_instance", None)
        if isinstance(clone.parent, pytest.Class):
            clone._obj = None
        clone._initrequest()
    return cast("pytest.Item", clone)


def _last_line(excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
    """Replace the traceback, which costs more than the rest of a failing rollout."""
    return excinfo.exconly(tryshort=True)


def run_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    runtestprotocol(item, log=False, nextitem=nextitem)


def finish_fixture(request: pytest.FixtureRequest) -> None:
    """Tear down the fixture that was set up for a request, after all that depend on it."""
    cast("Any", request)._fixturedef.finish(request)


def prune_finalizers(item: pytest.Item) -> None:
    """Remove the finalizers that finished fixtures of this item left on fixtures of wider scopes.

    pytest keeps them, together with the item and its output, until that scope ends.
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


def forget_subtests(item: pytest.Item) -> None:
    """Reset the count of failed subtests that pytest keeps by node id for ordinary reports."""
    try:
        from _pytest.subtests import failed_subtests_key
    except ImportError:  # before pytest 9
        return
    counts = cast("dict[object, int]", item.config.stash[failed_subtests_key])
    counts.pop(getattr(item, "id", item.nodeid), None)
    counts.pop(item.nodeid, None)


def tear_down_to(session: pytest.Session, item: pytest.Item | None) -> None:
    cast("Any", session)._setupstate.teardown_exact(item)


def forget_setup(session: pytest.Session) -> None:
    cast("Any", session)._setupstate = SetupState()


def take_stop(session: pytest.Session) -> str:
    """Return and clear the reason why the session was asked to stop; empty if it was not."""
    state = cast("Any", session)
    reason = state._shouldstop or state._shouldfail
    state._shouldstop = state._shouldfail = False
    return str(reason or "")


@contextlib.contextmanager
def without(
    config: pytest.Config, hooks: Sequence[str], plugins: Sequence[str] | None = None
) -> Iterator[None]:
    """Disable implementations of hooks while open: those of the named plugins, or all."""
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
