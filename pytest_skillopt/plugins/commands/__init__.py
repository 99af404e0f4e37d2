"""Commands that are not really run: ``skill_commands`` stubs, refuses and records them."""

from __future__ import annotations

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


@pytest.fixture
def skill_commands(request: pytest.FixtureRequest) -> Iterator[Commands]:
    """Answer commands in place of the real ones, e.g. ``skill_commands("gh", {"pr list": "#7"})``.

    They hold for ``skill_harness``, for the tool ``skill_commands.run`` and for what the test
    starts with ``skill_commands.env``. Every call is recorded: ``.calls``, ``.called("pr",
    "merge")``, ``.never("push", "--force")``.
    """
    from pytest_skillopt.plugins.commands.commands import Commands
    from pytest_skillopt.plugins.commands.server import Server
    from pytest_skillopt.rollouts.context import recorder

    commands = Commands(recorder(request), Server.of(request.config))
    try:
        yield commands
    finally:
        commands.close()
    commands.check()
