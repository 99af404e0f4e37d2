"""Write the settings into ``reference.md``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.settings import documented, meaning, shown

if TYPE_CHECKING:
    import dataclasses

REFERENCE = Path(__file__).with_name("reference.md")
BEFORE = "with their defaults:\n\n"


def rows() -> list[str]:
    """The line of each setting that the help shows, by its option if it has one."""
    return [row(field) for field in documented()]


def row(field: dataclasses.Field[Any]) -> str:
    said = not shown(field.default) or "default:" in meaning(field)
    default = "" if said else f" ({shown(field.default)})"
    name = f"skillopt_{field.name}"
    if field.metadata["option"]:
        name = "--" + name.replace("_", "-")
    return f"- `{name}`{default}: {meaning(field)}"


def main() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    start = text.index(BEFORE) + len(BEFORE)
    end = text.index("\n\n", start)
    REFERENCE.write_text(text[:start] + "\n".join(rows()) + text[end:], encoding="utf-8")


if __name__ == "__main__":
    main()
