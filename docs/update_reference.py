"""Write the options, as ``pytest --help`` shows them, and the ini keys into ``reference.md``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pytest_skillopt.settings import documented, meaning, shown

REFERENCE = Path(__file__).with_name("reference.md")
TITLE = "training of agent skills (pytest-skillopt):"
COLUMNS = "80"
TABLE = "| ini key | default | meaning |"


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


def ini_table() -> str:
    """A row for each setting without an option."""
    rows = [
        f"| `skillopt_{field.name}` | {shown(field.default)} | {meaning(field)} |"
        for field in documented()
        if not field.metadata["option"]
    ]
    return "\n".join([TABLE, "|---|---|---|", *rows])


def main() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    start = text.index(TABLE)
    text = text[:start] + ini_table() + text[text.index("\n\n", start) :]
    start = text.index(TITLE)
    end = text.index("\n```", start)
    REFERENCE.write_text(text[:start] + help_block() + text[end:], encoding="utf-8")


if __name__ == "__main__":
    main()
