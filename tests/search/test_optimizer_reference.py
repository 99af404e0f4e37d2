"""The tables of mechanisms in the docs: every setting of the search, with its default."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from pytest_skillopt.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"
NAMES = [field.name for field in dataclasses.fields(Settings)]
SEARCH = NAMES[NAMES.index("search") + 1 : NAMES.index("gate_alpha")]
"""From the search to the gate, whose own settings are explained in ``docs/gate.md``."""
PUBLISHED = NAMES[NAMES.index("epochs") : NAMES.index("gate_broad") + 1]


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    text = (DOCS / page).read_text(encoding="utf-8").partition(heading)[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


OURS = rows("optimizer.md", "## What is called how, here and elsewhere")
THEIRS = rows("published.md", "# Published mechanisms and their settings")


def test_every_row_names_the_others() -> None:
    assert {len(row) for row in OURS} == {6}
    assert {len(row) for row in THEIRS} == {5}


@pytest.mark.parametrize("name", [*SEARCH, *PUBLISHED])
def test_every_setting_of_the_search_has_its_row_and_default(name: str) -> None:
    """One row a setting, with the default that the code has."""
    named = [row[1:] for row in OURS if f"`{name}`" in row[1]]
    named += [row for row in THEIRS if f"`{name}`" in row[0]]
    ((_, *cells),) = named
    shown = cells[0] if name in SEARCH else cells[1]
    default = getattr(Settings(), name)
    if isinstance(default, bool):
        assert shown == ("yes" if default else "no")
    elif default == "":
        assert shown.startswith(("empty", "none", "ours"))
    else:
        assert re.match(rf"{default:g}\b" if isinstance(default, float) else rf"{default}\b", shown)
