"""Whether pytest, pluggy and pytest-xdist have every private name that rollouts use.

See docs/decisions/workers.md.
"""

from __future__ import annotations

import importlib.metadata
import inspect
from typing import TYPE_CHECKING, Any

import pytest


def unsupported(missing: str, *packages: str) -> pytest.UsageError:
    """Names the versions of the packages, and what is missing in them."""
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
    from _pytest.fixtures import FixtureDef, FixtureManager, FuncFixtureInfo, SubRequest
    from _pytest.mark.structures import NodeKeywords
    from _pytest.runner import SetupState, runtestprotocol
    from _pytest.stash import Stash
    from _pytest.warnings import catch_warnings_for_item
    from pluggy import HookCaller
except ImportError as missing:
    raise unsupported(str(missing), "pytest", "pluggy") from None

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "FixtureManager",
    "SetupState",
    "Stash",
    "assertion",
    "catch_warnings_for_item",
    "probe",
    "probe_xdist",
    "runtestprotocol",
    "unsupported",
]

NAMES: tuple[tuple[type, tuple[str, ...]], ...] = (
    (pytest.Session, ("_setupstate", "_fixturemanager", "_shouldstop", "_shouldfail")),
    (pytest.Session, ("perform_collect", "from_config")),
    (pytest.Item, ("_report_sections", "_store", "_repr_failure_py")),
    (pytest.Function, ("_initrequest", "_fixtureinfo", "_instance", "_obj")),
    (FuncFixtureInfo, ("name2fixturedefs",)),
    (FixtureDef, ("finish", "_finalizers", "cached_result")),
    (SubRequest, ("_fixturedef",)),
    (NodeKeywords, ("_markers", "node")),
    (Stash, ("_storage",)),
    (SetupState, ("stack", "teardown_exact")),
    (HookCaller, ("_hookimpls",)),
)
"""By class, the attributes that are used."""

CALLS: tuple[tuple[Callable[..., Any], tuple[str, ...]], ...] = (
    (runtestprotocol, ("item", "log", "nextitem")),
    (catch_warnings_for_item, ("config", "ihook", "when", "item", "record")),
    (assertion.pytest_runtest_protocol, ("item",)),
    (FixtureManager, ("session",)),
    (FixtureDef.finish, ("request",)),
)
"""By function, the parameters that are passed."""

XDIST = (
    "node.notify_inproc",
    "node.shutdown",
    "node.workerinput",
    "node.gateway.id",
    "node.gateway.newchannel",
    "dsession._max_worker_restart",
    "dsession._clone_node",
    "dsession.worker_runtest_protocol_complete",
)
"""Of the controller's end of a worker, and of the plugin that runs the session."""


def probe() -> None:
    """Raises:
    pytest.UsageError: pytest or pluggy have changed.
    """
    for name in _missing(NAMES, CALLS):
        raise unsupported(name, "pytest", "pluggy")


def probe_xdist(node: Any, dsession: Any) -> None:
    """Raises:
    pytest.UsageError: xdist or execnet has changed.
    """
    for name in XDIST:
        owner, _, path = name.partition(".")
        there: Any = {"node": node, "dsession": dsession}[owner]
        for step in path.split("."):
            if not hasattr(there, step):
                raise unsupported(name, "pytest-xdist", "execnet")
            there = getattr(there, step)


def _missing(
    names: Iterable[tuple[type, tuple[str, ...]]],
    calls: Iterable[tuple[Callable[..., Any], tuple[str, ...]]],
) -> Iterator[str]:
    for owner, attributes in names:
        yield from (f"{owner.__name__}.{name}" for name in attributes if not _has(owner, name))
    for function, parameters in calls:
        known = inspect.signature(function).parameters
        yield from (f"{function.__qualname__}({p}=)" for p in parameters if p not in known)


def _has(owner: type, name: str) -> bool:
    """Whether the class, its annotations or its methods name the attribute."""
    return hasattr(owner, name) or any(
        name in vars(cls).get("__annotations__", ()) or _mentions(cls, name)
        for cls in owner.__mro__
    )


def _mentions(cls: type, name: str) -> bool:
    methods = (f for f in vars(cls).values() if inspect.isfunction(f))
    return any(name in method.__code__.co_names for method in methods)
