"""All uses of private interfaces of pytest, pytest-xdist and execnet but those of plugins.

Check that they have every private name that rollouts use: docs/decisions/workers.md.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import re
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import execnet
import pytest

from pytest_skillopt.processes import kill_descendants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


def unsupported(missing: str, *packages: str) -> pytest.UsageError:
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return pytest.UsageError(
        f"pytest-skillopt {version('pytest-skillopt')} cannot run rollouts with {versions}: "
        f"{missing} is not as expected. Install a version that pytest-skillopt supports."
    )


try:
    from _pytest.mark.structures import NodeKeywords
    from _pytest.runner import SetupState as SetupState
    from _pytest.runner import runtestprotocol as runtestprotocol
    from _pytest.stash import Stash as Stash
    from pluggy import HookCaller
except ImportError as missing:
    raise unsupported(str(missing), "pytest", "pluggy") from None

NAMES: dict[type, str] = {
    pytest.Session: "_setupstate _shouldstop _shouldfail",
    pytest.Item: "_report_sections _store _repr_failure_py",
    pytest.Function: "_initrequest _fixtureinfo _instance _obj",
    pytest.FixtureDef: "name2fixturedefs finish _finalizers cached_result _fixturedef",
    NodeKeywords: "_markers",
    Stash: "_storage",
    SetupState: "teardown_exact",
    HookCaller: "_hookimpls",
}
"""Private attributes used of each class and of others in its module."""


def probe(
    names: Mapping[type, str] = NAMES, packages: Sequence[str] = ("pytest", "pluggy")
) -> None:
    """Raise UsageError if the packages have changed."""
    for owner, used in names.items():
        if missing := _missing(owner, used):
            raise unsupported(f"{owner.__module__}: {missing}", *packages)


@functools.cache  # A process may have many runners.
def _missing(owner: type, names: str) -> str:
    """Return the first of the names that the module of a class has not; empty if there is none."""
    source = Path(inspect.getfile(owner)).read_text(encoding="utf-8")
    return next((name for name in names.split() if not re.search(rf"\b{name}\b", source)), "")


_PRUNE_ABOVE = 16


def fresh_copy(item: pytest.Item) -> pytest.Item:
    """Copy a collected item as if it had not run: same node id, same parent, separate state."""
    clone: Any = copy.copy(item)
    clone.location = item.location  # is found once for all copies
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
    for fixturedef in _fixture_definitions(item):
        finalizers = fixturedef._finalizers
        if len(finalizers) > _PRUNE_ABOVE:
            finalizers[:] = [f for f in finalizers if not _is_spent(f)]


def fixture_functions(item: pytest.Item) -> list[Callable[..., Any]]:
    """Return the functions of the fixtures that an item uses, those that others override too."""
    return [fixturedef.func for fixturedef in _fixture_definitions(item)]


def _fixture_definitions(item: pytest.Item) -> list[Any]:
    definitions = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    return [each for several in definitions.values() for each in several]


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


_RESTART_TRIES = 5
_RESTART_PAUSE = 1.0
"""Seconds between two attempts."""


def xdist_names() -> dict[type, str]:
    """Return the private names of xdist that the controller uses, by class."""
    from xdist.dsession import DSession
    from xdist.workermanage import WorkerController

    return {
        WorkerController: "notify_inproc shutdown workerinput gateway",
        DSession: "_max_worker_restart _clone_node worker_runtest_protocol_complete",
    }


def wake_controller(node: Any) -> None:
    """Wake xdist's loop from any thread, so that it asks its scheduler."""
    node.notify_inproc("runtest_protocol_complete", node=node, item_index=None, duration=0.0)


def kill_worker(node: Any) -> None:
    """Kill a worker, stopped or not, and what it has started; xdist then replaces it.

    The connection of one elsewhere is cut.
    """
    io = node.gateway._io
    if process := getattr(io, "popen", None):
        kill_descendants(of=process.pid)
    if hasattr(io, "kill"):
        io.kill()


def wrap_shutdown(node: Any, around: Callable[[Callable[[], None]], None]) -> None:
    """Call ``around(shutdown)`` when xdist tells a worker to shut down."""
    node.shutdown = functools.partial(around, node.shutdown)


def adopt_restarts(config: pytest.Config, tell: Callable[[str], None]) -> None:
    """Lift xdist's limit of restarted workers, and survive a worker that cannot be restarted.

    The limit guards against workers that never start, which the caller counts itself. A restart is
    attempted repeatedly, in case its server restarts, too; ``tell`` is called if all attempts fail.
    """
    dsession: Any = config.pluginmanager.get_plugin("dsession")
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
        except (OSError, EOFError, execnet.HostNotFound) as failed:
            error = failed
            time.sleep(_RESTART_PAUSE)
    tell(f"{node.gateway.id} cannot be started again ({error}); the others go on without it")
    return None
