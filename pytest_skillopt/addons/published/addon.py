"""Search ``batch`` with its settings, further gates, and the command ``export``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pytest_skillopt.addons.later import later
from pytest_skillopt.addons.published.settings import PublishedSettings

SETTINGS = PublishedSettings
PROMPTS = Path(__file__).parent / "prompts"
SEARCHES = {"batch": later("published.search_batch:search")}
GATES = {
    name: partial(later("published.gates:named"), name)
    for name in ("strict", "off", "confirm", "margin", "paired")
}
add_commands = later("published.export:add_export")
