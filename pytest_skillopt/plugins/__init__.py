"""The built-in plugins: ordinary pytest plugins, each of which ``-p no:skillopt-NAME`` removes."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pluggy

Value = TypeVar("Value")

BUILTIN = (
    "leaks",
    "formats",
    "agents",
    "commands",
    "judge",
    "lanes",
    "matrix",
    "mine",
    "propose",
    "published",
    "shorten",
    "users",
    "watch",
)
ENTRY_POINTS = "pytest_skillopt"
"""Group of entry points of the plugins that the commands load, too."""
_RUNNING: list[pytest.PytestPluginManager] = []
"""Plugin managers of the sessions in this process, the innermost last."""


def register_builtin(manager: pytest.PytestPluginManager) -> None:
    """Register each built-in plugin that is neither switched off nor registered."""
    for name in BUILTIN:
        known = f"skillopt-{name}"
        if not manager.is_blocked(known) and not manager.has_plugin(known):
            manager.register(import_module(f"{__name__}.{name}"), known)


def enter_session(config: pytest.Config) -> None:
    """Let ``hooks`` return those of a session until its end."""
    _RUNNING.append(config.pluginmanager)
    config.add_cleanup(lambda: _RUNNING.remove(config.pluginmanager))


def hooks() -> pluggy.HookRelay:
    """Return the hooks of the session that runs; outside of one those of the installed plugins."""
    return running().hook


def running() -> pytest.PytestPluginManager:
    """Return the plugin manager of the session that runs, or one of the installed plugins."""
    return _RUNNING[-1] if _RUNNING else _installed()


@functools.cache
def _installed() -> pytest.PytestPluginManager:
    from pytest_skillopt import hookspecs

    found = pytest.PytestPluginManager()
    found.add_hookspecs(hookspecs)
    register_builtin(found)
    found.load_setuptools_entrypoints(ENTRY_POINTS)
    return found


def merged(tables: Iterable[Mapping[str, Value]]) -> dict[str, Value]:
    """Put the results of a hook into one table; of one name the plugin registered last counts."""
    return {name: value for table in reversed([*tables]) for name, value in table.items()}


def switched_off(config: pytest.Config) -> str:
    """Name the built-in plugins that a session does without, for the end of an error."""
    blocked = config.pluginmanager.is_blocked
    names = [f"skillopt-{name}" for name in BUILTIN if blocked(f"skillopt-{name}")]
    return f"; switched off: {', '.join(names)}" if names else ""
