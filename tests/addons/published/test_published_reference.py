"""The table of ``docs/published.md``: every setting of published mechanisms, with its default."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.settings import quiet, shown

if TYPE_CHECKING:
    import dataclasses

PAGE = Path(__file__).parents[3] / "docs" / "published.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| `")
]


@pytest.mark.parametrize("field", quiet(), ids=lambda field: field.name)
def test_every_setting_has_its_row_and_default(field: dataclasses.Field[Any]) -> None:
    assert {len(row) for row in ROWS} == {4}
    ((_, _, default, *_),) = [row for row in ROWS if row[0] == f"`{field.name}`"]
    assert default == shown(field.default)
