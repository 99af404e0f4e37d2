"""Write options and ini keys into ``reference.md``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.settings import documented, meaning, shown

if TYPE_CHECKING:
    import dataclasses

REFERENCE = Path(__file__).with_name("reference.md")
TITLE = "training of agent skills (pytest-skillopt):"
COLUMNS = "80"
SETTINGS = "Settings without an option, with their defaults:"


def help_block() -> str:
    """The group of options as pytest shows it, in a project without settings of its own."""
    command = [sys.executable, "-m", "pytest", "--help"]
    environ = os.environ | {"COLUMNS": COLUMNS}
    with tempfile.TemporaryDirectory() as folder:
        found = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, check=True
        )
    start = found.stdout.index(TITLE)
    return found.stdout[start : found.stdout.index("\n\n", start)]


def ini_keys() -> str:
    """A line for each setting without an option."""
    return "\n".join(row(field) for field in documented() if not field.metadata["option"])


def row(field: dataclasses.Field[Any]) -> str:
    """The line of one setting."""
    default = f" ({shown(field.default)})" if shown(field.default) else ""
    return f"- `skillopt_{field.name}`{default}: {meaning(field)}"


def main() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    start = text.index(SETTINGS) + len(SETTINGS) + 2
    text = text[:start] + ini_keys() + text[text.index("\n\n", start) :]
    start = text.index(TITLE)
    end = text.index("\n```", start)
    REFERENCE.write_text(text[:start] + help_block() + text[end:], encoding="utf-8")


if __name__ == "__main__":
    main()
