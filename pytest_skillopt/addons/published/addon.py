"""Search ``batch`` with its settings, further gates, and the command ``export``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.addons.published.settings import PublishedSettings

if TYPE_CHECKING:
    import argparse

    from pytest_skillopt.gate.engine import SequentialGate
    from pytest_skillopt.search.extensions import Search


def _search() -> Search:
    from pytest_skillopt.addons.published.search_batch import SEARCH

    return SEARCH


def _gate(name: str) -> type[SequentialGate]:
    from pytest_skillopt.addons.published.gates import PUBLISHED

    return PUBLISHED[name]


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    from pytest_skillopt.addons.published.export import add_export

    add_export(commands)


SETTINGS = PublishedSettings
PROMPTS = Path(__file__).parent / "prompts"
SEARCHES = {"batch": _search}
GATES = {name: partial(_gate, name) for name in ("strict", "off", "confirm", "margin", "paired")}
