"""Commands that are not really run: ``skill_commands`` stubs, refuses and records them.

Stubs are executables on the path of what a test starts, so they need Linux or macOS.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt.plugins.commands.answers import PASS, REFUSE, SPY, Exit
    from pytest_skillopt.plugins.commands.commands import Commands

__all__ = ["PASS", "REFUSE", "SPY", "Exit"]


def __getattr__(name: str) -> Any:
    """Import a name when it is used: its classes would cost every session 2 ms."""
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.answers"), name)


def pytest_skillopt_task(item: pytest.Item, skill: str) -> None:
    """Refuse a task with stubs before anything is paid for, if the system has none."""
    if "skill_commands" in getattr(item, "fixturenames", ()):
        _check_system()


@pytest.fixture
def skill_commands(request: pytest.FixtureRequest) -> Iterator[Commands]:
    """Answer commands in place of the real ones, e.g. ``skill_commands("gh", {"pr list": "#7"})``.

    They hold for ``skill_harness``, for the tool ``skill_commands.run`` and for what the test
    starts with ``skill_commands.env``. Every call is recorded: ``.calls``, ``.called("pr",
    "merge")``, ``.never("push", "--force")``.
    """
    from pytest_skillopt.fixtures import without_traceback
    from pytest_skillopt.plugins.commands.commands import Commands
    from pytest_skillopt.plugins.commands.server import Server
    from pytest_skillopt.rollouts.context import recorder

    with without_traceback():
        _check_system()
    commands = Commands(recorder(request), Server.of(request.config))
    try:
        yield commands
    finally:
        commands.close()
    commands.check()


def _check_system() -> None:
    if os.name == "nt":
        raise pytest.UsageError(
            "skill_commands puts stubs on the path on Linux and macOS only, because Windows finds "
            "commands in another way: run these tests in WSL, or leave them out with --ignore or -k"
        )
