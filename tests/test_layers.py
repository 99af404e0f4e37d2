"""Which parts of the package may import which."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pytest_skillopt

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(pytest_skillopt.__file__).parent
SHOWS = {"report", "modes", "session", "plugin"}
LEARNS = {"gate", "edits", "search"}
BELOW = {
    **dict.fromkeys(("skill", "model", "suite", "run"), LEARNS | SHOWS),
    "gate": {"edits", "search", "model", "settings", "suite", "run"} | SHOWS,
    "edits": {"search"} | SHOWS,
    "search": SHOWS,
    "report": {"modes", "session", "plugin"},
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


def test_the_default_path_never_imports_a_published_mechanism() -> None:
    """A whole training in the toy world, in a process of its own."""
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import toy_world as toy
from pytest_skillopt import Document, Trainer
from pytest_skillopt.settings import Settings

world = toy.make_world()
tasks = toy.make_tasks(world)
document, sampler = Document.from_bytes(toy.SKILL), toy.ToySampler(world, tasks)
outcome = Trainer(document, tasks, sampler, toy.ToyOptimizer(), Settings(max_rollouts=400)).run()
assert outcome.status == "accepted", outcome.reason
mechanisms = {name for name in sys.modules if name.startswith("pytest_skillopt.addons.published.")}
print(sorted(mechanisms - {f"pytest_skillopt.addons.published.{n}" for n in ("addon", "settings")}))
"""
    support = str(Path(__file__).parent / "_support")
    found = subprocess.run(
        [sys.executable, "-c", program, support], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_no_two_modules_import_each_other() -> None:
    """In a function or for annotations as little as when they are loaded."""
    below: dict[str, set[str]] = {}
    paths = {
        ".".join(p.relative_to(PACKAGE).with_suffix("").parts): p for p in PACKAGE.rglob("*.py")
    }
    for name, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE.name):
                bare = (node.module or "").removeprefix(PACKAGE.name).removeprefix(".")
                wanted = {f"{bare}.{alias.name}".strip(".") for alias in node.names} | {bare}
                below.setdefault(name, set()).update(wanted & paths.keys())
    order = graphlib.TopologicalSorter(below)
    order.prepare()
