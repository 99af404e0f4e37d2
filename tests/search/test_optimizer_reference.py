"""The table of mechanisms in ``docs/optimizer.md``: every setting, with its default."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from pytest_skillopt.search.searches import BATCH_ONLY
from pytest_skillopt.settings import Settings

TEXT = (Path(__file__).parents[2] / "docs" / "optimizer.md").read_text(encoding="utf-8")
TABLE = TEXT.partition("## What each mechanism is called")[2].partition("\n## ")[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.splitlines()
    if line.startswith("| ") and not line.startswith("| mechanism")
]
NAMES = [field.name for field in dataclasses.fields(Settings)]
OPTIMIZER = NAMES[NAMES.index("search") + 1 : NAMES.index("gate_alpha")]
"""From the search to the gate, whose own settings are explained in ``docs/gate.md``."""


def row_of(name: str) -> list[str]:
    (row,) = [row for row in ROWS if f"`{name}`" in row[1]]
    return row


def test_every_row_names_the_others() -> None:
    assert {len(row) for row in ROWS} == {6}


@pytest.mark.parametrize("name", OPTIMIZER)
def test_every_setting_of_the_optimizer_has_its_row(name: str) -> None:
    default = getattr(Settings(), name)
    shown = row_of(name)[2]
    if name == "mixed_weight":
        assert shown.endswith(f"{default}")
    elif isinstance(default, bool):
        assert shown == ("yes" if default else "no")
    elif default == "":
        assert shown.startswith(("empty", "none", "ours"))
    else:
        assert re.match(rf"{default}\b", shown)


@pytest.mark.parametrize("name", OPTIMIZER)
def test_the_row_says_for_which_search_it_is(name: str) -> None:
    search = row_of(name)[5]
    for_batch_alone = search.startswith("batch") and not search.startswith("batch: raced")
    assert for_batch_alone == (name in BATCH_ONLY or name == "update_mode")
