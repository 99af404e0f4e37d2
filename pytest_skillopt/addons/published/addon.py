"""Search ``batch`` with its settings, further gates, and the command ``export``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.addon import AddOn
from pytest_skillopt.addons.later import Later
from pytest_skillopt.addons.published.settings import PublishedSettings

if TYPE_CHECKING:
    from pytest_skillopt.addons.published import export, gates, search_batch
else:
    export, gates = Later("published.export"), Later("published.gates")
    search_batch = Later("published.search_batch")

_GATES = ("strict", "off", "confirm")
ADDON = AddOn(
    settings=PublishedSettings,
    prompts=Path(__file__).parent / "prompts",
    searches={"batch": search_batch.search},
    gates={name: partial(gates.named, name) for name in _GATES},
    add_commands=export.add_export,
)
