"""The list of ``docs/published.md``: every setting of published mechanisms, with its default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.settings import quiet, shown

if TYPE_CHECKING:
    import dataclasses

PAGE = Path(__file__).parents[3] / "docs" / "published.md"
DEFAULTS = re.findall(r"^- `(\w+)` \(([^;)]*)[;)]", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("field", quiet(), ids=lambda field: field.name)
def test_every_setting_has_its_line_and_default(field: dataclasses.Field[Any]) -> None:
    (default,) = [default for name, default in DEFAULTS if name == field.name]
    assert default == shown(field.default)
