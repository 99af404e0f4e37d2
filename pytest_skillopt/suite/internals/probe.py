"""Check that pytest, pluggy and pytest-xdist have every private name that rollouts use.

See docs/decisions/workers.md.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
    from _pytest import assertion as assertion
    from _pytest.fixtures import FixtureManager as FixtureManager
    from _pytest.mark.structures import NodeKeywords
    from _pytest.runner import SetupState as SetupState
    from _pytest.runner import runtestprotocol as runtestprotocol
    from _pytest.stash import Stash as Stash
    from _pytest.warnings import catch_warnings_for_item as catch_warnings_for_item
    from pluggy import HookCaller
except ImportError as missing:
    raise unsupported(str(missing), "pytest", "pluggy") from None

NAMES: dict[type, str] = {
    pytest.Session: "_setupstate _fixturemanager _shouldstop _shouldfail perform_collect",
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
        source = Path(inspect.getfile(owner)).read_text(encoding="utf-8")
        for name in used.split():
            if not re.search(rf"\b{name}\b", source):
                raise unsupported(f"{owner.__module__}: {name}", *packages)
