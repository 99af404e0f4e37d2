"""Find the add-ons and their declarations (``addon.py``)."""

from __future__ import annotations

import functools
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from pytest_skillopt.addon import AddOn

Value = TypeVar("Value")

_FOLDER = Path(__file__).parent / "addons"
_BROKEN: dict[str, Exception] = {}
"""Add-ons that cannot be imported, by name."""


@functools.cache
def plugins() -> dict[str, ModuleType]:
    """Import the ``addon.py`` of each add-on, a pytest plugin; skip a broken one with a warning."""
    return _imported("addon")


@functools.cache
def addons() -> list[AddOn]:
    return [plugin.ADDON for plugin in plugins().values()]


def merged(table: Callable[[AddOn], Mapping[str, Value]]) -> dict[str, Value]:
    """Put the tables of all add-ons into one."""
    return {name: value for addon in addons() for name, value in table(addon).items()}


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
    for name, plugin in plugins().items():
        if not manager.has_plugin(f"skillopt-{name}"):
            manager.register(plugin, f"skillopt-{name}")
