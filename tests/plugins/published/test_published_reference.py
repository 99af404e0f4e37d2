"""The list of ``docs/published.md``: every setting of published mechanisms, with its default."""

from __future__ import annotations

import re
from pathlib import Path

from tables import each_row

from pytest_skillopt.settings import FIELDS, in_words

PAGE = Path(__file__).parents[3] / "docs" / "published.md"
DEFAULTS = re.findall(r"^- `(\w+)` \(([^;)]*)[;)]", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@each_row(("name", "default"), DEFAULTS)
def test_every_line_is_a_setting_with_its_default(name: str, default: str) -> None:
    (field,) = [field for field in FIELDS if field.name == name]
    assert default == in_words(field.default)
