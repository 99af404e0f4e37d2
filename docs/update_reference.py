"""Write options and ini keys into ``reference.md``, and the hooks into ``hooks.md``."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from pytest_skillopt import hookspecs
from pytest_skillopt.settings import documented, meaning, shown

REFERENCE = Path(__file__).with_name("reference.md")
HOOKS = REFERENCE.with_name("hooks.md")
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


def hook_page() -> str:
    """The page of all hooks: signature, explanation and example, from their specifications."""
    parts = ["# Hooks", plain(hookspecs)]
    for name, hook in vars(hookspecs).items():
        if not name.startswith("pytest_skillopt_"):
            continue
        said, _, example = plain(hook).partition("::\n\n")
        first = " (firstresult)" if hook.pytest_spec["firstresult"] else ""
        signature = str(inspect.signature(hook)).replace("'", "")
        parts += [f"## {name}{first}", f"```python\n{name}{signature}\n```", f"{said}:"]
        parts.append(f"```python\n{textwrap.dedent(example).strip()}\n```")
    return "\n\n".join(parts) + "\n"


def plain(documented: object) -> str:
    """A docstring as Markdown."""
    return re.sub("``(.+?)``", r"`\1`", inspect.getdoc(documented) or "")


def main() -> None:
    HOOKS.write_text(hook_page(), encoding="utf-8")
    text = REFERENCE.read_text(encoding="utf-8")
    start = text.index(TABLE)
    text = text[:start] + ini_table() + text[text.index("\n\n", start) :]
    start = text.index(TITLE)
    end = text.index("\n```", start)
    REFERENCE.write_text(text[:start] + help_block() + text[end:], encoding="utf-8")


if __name__ == "__main__":
    main()
