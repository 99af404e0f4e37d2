"""Find the add-ons and what they declare; ``addons/__init__.py`` lists the names that count."""

from __future__ import annotations

import functools
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

_FOLDER = Path(__file__).parent / "addons"
_BROKEN: dict[str, Exception] = {}
"""Add-ons that cannot be imported, by name."""


@functools.cache
def addons() -> dict[str, ModuleType]:
    """Import the declaration of each add-on; skip a broken one with a warning."""
    return _imported("addon")


def _imported(part: str) -> dict[str, ModuleType]:
    found: dict[str, ModuleType] = {}
    for file in sorted(_FOLDER.glob(f"*/{part}.py")):
        name = file.parent.name
        try:
            found[name] = import_module(f"pytest_skillopt.addons.{name}.{part}")
        except Exception as error:
            _BROKEN[name] = error
            said = f"pytest-skillopt continues without its add-on {name!r}: {error!r}"
            warnings.warn(said, stacklevel=3)
    return found


def refuse_broken() -> None:
    """Raise UsageError if an add-on cannot be imported: a mode would run without its checks."""
    if _BROKEN:
        name, error = next(iter(_BROKEN.items()))
        raise pytest.UsageError(
            f"pytest-skillopt cannot import its add-on {name!r}: {error!r}. Install the package "
            f"anew, or delete {_FOLDER / name} to go on without it"
        )


def register_fixtures(manager: pytest.PytestPluginManager) -> None:
    for name, fixtures in _imported("fixtures").items():
        manager.register(fixtures, f"skillopt-{name}-fixtures")


def register_addons(manager: pytest.PytestPluginManager) -> None:
    """Register each add-on as a plugin, if that has not been done."""
    for name, addon in addons().items():
        if not manager.has_plugin(f"skillopt-{name}"):
            manager.register(addon, f"skillopt-{name}")


def declared(what: str) -> list[Any]:
    """List what the add-ons declare under a name, such as ``SETTINGS``."""
    return [getattr(addon, what) for addon in addons().values() if hasattr(addon, what)]


def merged(what: str) -> dict[str, Any]:
    """Put the tables that the add-ons declare under a name, such as ``GATES``, into one."""
    return {key: value for table in declared(what) for key, value in table.items()}
