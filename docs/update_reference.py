"""Write the settings into ``reference.md``."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from pathlib import Path
from typing import Any

from pytest_skillopt import options, plugins

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
    """Options and settings that the core and the built-in plugins declare."""
    found: Any = Declared()
    options.pytest_addoption(found)
    for name in plugins.BUILTIN:
        plugin = import_module(f"pytest_skillopt.plugins.{name}")
        if hasattr(plugin, "pytest_addoption"):
            plugin.pytest_addoption(found)
    result: Declared = found
    return result


def rows() -> list[str]:
    """The line of each ini key, by its option if it has one."""
    found = declared()
    made = []
    for key, text in found.keys.items():
        flag = "--" + key.replace("_", "-")
        shown = flag if flag in found.options else key
        made.append(f"- `{shown}`: {found.options.get(flag, text)}")
    return made


def main() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    start = text.index(BEFORE) + len(BEFORE)
    end = text.index("\n\n", start)
    REFERENCE.write_text(text[:start] + "\n".join(rows()) + text[end:], encoding="utf-8")


if __name__ == "__main__":
    main()
