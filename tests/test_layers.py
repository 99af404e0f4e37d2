"""Which parts of the package may import which."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pytest_skillopt

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(pytest_skillopt.__file__).parent
SHOWS = {"report", "modes", "propose", "session", "plugin"}
LEARNS = {"gate", "edits", "search", "published"}
BELOW = {
    **dict.fromkeys(("skill", "model", "suite", "run"), LEARNS | SHOWS),
    "gate": {"edits", "search", "published", "model", "settings", "suite", "run"} | SHOWS,
    "edits": {"search"} | SHOWS,
    **dict.fromkeys(("search", "published"), SHOWS),
    "report": {"modes", "propose", "session", "plugin"},
}
"""By part, the parts that stand above it; what is imported for annotations counts as well."""


def imported(source: str) -> Iterator[str]:
    """Parts of the package that a module names in its imports."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            package, _, rest = name.partition(".")
            if package == "pytest_skillopt":
                yield rest.partition(".")[0]


@pytest.mark.parametrize("part", BELOW)
def test_no_part_imports_what_stands_above_it(part: str) -> None:
    modules = sorted((PACKAGE / part).rglob("*.py"))
    assert modules
    upward = [
        f"{module.relative_to(PACKAGE)} imports {name}"
        for module in modules
        for name in imported(module.read_text(encoding="utf-8"))
        if name in BELOW[part]
    ]
    assert upward == []
