"""Write the plugin's block of ``pytest --help`` anew into ``reference.md``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

REFERENCE = Path(__file__).with_name("reference.md")
TITLE = "training of agent skills (pytest-skillopt):"
COLUMNS = "80"


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


def main() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    start = text.index(TITLE)
    end = text.index("\n```", start)
    REFERENCE.write_text(text[:start] + help_block() + text[end:], encoding="utf-8")


if __name__ == "__main__":
    main()
