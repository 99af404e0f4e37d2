"""Write the settings into ``reference.md``."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from pathlib import Path
from typing import Any

from pytest_skillopt import options, plugins
from pytest_skillopt.settings import FIELDS

REFERENCE = Path(__file__).with_name("reference.md")
BEFORE = "with their defaults:\n\n"


@dataclasses.dataclass
class Declared:
    """Stands in for pytest's parser, and keeps what is declared: help by name."""

    options: dict[str, str] = dataclasses.field(default_factory=dict)
    keys: dict[str, str] = dataclasses.field(default_factory=dict)

    def getgroup(self, *name: str) -> Declared:
        return self

    def addoption(self, flag: str, *, help: str, **how: Any) -> None:
        self.options[flag] = help

    def addini(self, name: str, help: str, **how: Any) -> None:
        self.keys[name] = help


def declared() -> Declared:
    """What the core and the built-in plugins declare."""
    found: Any = Declared()
    options.pytest_addoption(found)
    for name in plugins.BUILTIN:
        plugin = import_module(f"pytest_skillopt.plugins.{name}")
        if hasattr(plugin, "pytest_addoption"):
            plugin.pytest_addoption(found)
    result: Declared = found
    return result


def rows() -> list[str]:
    """The line of each setting, by its option if it has one, unless published.md has it."""
    found = declared()
    made = []
    for field in FIELDS:
        flag, key = "--skillopt-" + field.name.replace("_", "-"), f"skillopt_{field.name}"
        if flag in found.options:
            made.append(f"- `{flag}`: {found.options[flag]}")
        elif not published(field.name):
            made.append(f"- `{key}`: {found.keys[key]}")
    return made


def published(name: str) -> bool:
    """Whether ``published.md`` describes a setting."""
    page = REFERENCE.with_name("published.md").read_text(encoding="utf-8")
    return f"- `{name}` (" in page


def main() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    start = text.index(BEFORE) + len(BEFORE)
    end = text.index("\n\n", start)
    REFERENCE.write_text(text[:start] + "\n".join(rows()) + text[end:], encoding="utf-8")


if __name__ == "__main__":
    main()
