"""Whether pytest, pluggy and pytest-xdist have every private name that rollouts use.

See docs/decisions/workers.md.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import re
from pathlib import Path
from typing import Any

import pytest


def unsupported(missing: str, *packages: str) -> pytest.UsageError:
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
    from _pytest.mark.structures import NodeKeywords
    from _pytest.runner import SetupState, runtestprotocol
    from _pytest.stash import Stash
    from _pytest.warnings import catch_warnings_for_item
    from pluggy import HookCaller
except ImportError as missing:
    raise unsupported(str(missing), "pytest", "pluggy") from None

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

NAMES: dict[type, str] = {
    pytest.Session: "_setupstate _fixturemanager _shouldstop _shouldfail perform_collect",
    pytest.Item: "_report_sections _store _repr_failure_py",
    pytest.Function: "_initrequest _fixtureinfo _instance _obj",
    pytest.FixtureDef: "name2fixturedefs finish _finalizers cached_result _fixturedef",
    NodeKeywords: "_markers",
    Stash: "_storage",
    SetupState: "stack teardown_exact",
    HookCaller: "_hookimpls",
}
"""By class, the attributes that are used of it and of others in its module."""

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
    """UsageError where pytest or pluggy have changed."""
    for owner, names in NAMES.items():
        source = Path(inspect.getfile(owner)).read_text(encoding="utf-8")
        for name in names.split():
            if not re.search(rf"\b{name}\b", source):
                raise unsupported(f"{owner.__module__}: {name}", "pytest", "pluggy")


def probe_xdist(node: Any, dsession: Any) -> None:
    """UsageError where xdist or execnet has changed."""
    for name in XDIST:
        owner, _, path = name.partition(".")
        there: Any = {"node": node, "dsession": dsession}[owner]
        for step in path.split("."):
            if not hasattr(there, step):
                raise unsupported(name, "pytest-xdist", "execnet")
            there = getattr(there, step)
