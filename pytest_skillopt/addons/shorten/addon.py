"""Searches ``shorten`` and ``trials,shorten``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.addon import AddOn
from pytest_skillopt.addons.later import Later

if TYPE_CHECKING:
    from pytest_skillopt.addons.shorten import search
else:
    search = Later("shorten.search")


ADDON = AddOn(
    prompts=Path(__file__).parent / "prompts",
    searches={"shorten": search.shorten, "trials,shorten": search.trials_shorten},
)
