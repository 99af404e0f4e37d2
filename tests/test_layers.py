"""Imports that the layers of the package allow."""

from __future__ import annotations

import ast
import dataclasses
import functools
import graphlib
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pytest_skillopt
from pytest_skillopt.registry import addons

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(pytest_skillopt.__file__).parent
TABLE = PACKAGE.parent / "docs" / "architecture.md"
WIDTH = 28
"""Columns of the names in the table of layers."""


def table(number: int) -> list[str]:
    """The lines of one of the documentation's tables, from 1."""
    return TABLE.read_text("utf-8").split("```text\n")[number].split("```")[0].splitlines()


def layers() -> list[set[str]]:
    """The rows of the documentation's table, the highest first."""
    return [set(row[:WIDTH].split()) for row in table(1)]


def for_addons() -> set[str]:
    """The modules of the core that add-ons may use, by their paths below the package."""
    rows = [(row[:8].strip(), row[8:].split()) for row in table(2)]
    return {f"{folder}.{name}".strip(".") for folder, names in rows for name in names}


LAYERS = layers()
PARTS = sorted(set().union(*LAYERS))
ADDONS = sorted(
    path.name for path in (PACKAGE / "addons").iterdir() if (path / "__init__.py").exists()
)


@functools.cache
def imported(source: str) -> tuple[str, ...]:
    """Names that a module imports of the package, by the path below it."""
    return tuple(_imported(ast.parse(source)))


def _imported(module: ast.AST) -> Iterator[str]:
    for node in ast.walk(module):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            package, _, rest = name.partition(".")
            if package == "pytest_skillopt":
                yield rest


def sources(part: str) -> list[Path]:
    """Modules of a part."""
    folder = PACKAGE / part
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{part}.py"]


def test_every_part_has_its_row() -> None:
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    others = {"__init__", "__main__", "__pycache__", "addon", "addons", "hookspecs"}
    assert there - set(PARTS) == others & there
    assert len(PARTS) == sum(map(len, LAYERS))


@pytest.mark.parametrize("part", PARTS)
def test_no_part_imports_what_stands_above_it(part: str) -> None:
    """Imports for annotations count as well."""
    row = next(number for number, names in enumerate(LAYERS) if part in names)
    above = set().union(*LAYERS[:row])
    upward = [
        f"{module.relative_to(PACKAGE)} imports {name}"
        for module in sources(part)
        for name in imported(module.read_text(encoding="utf-8"))
        if name.partition(".")[0] in above
    ]
    assert upward == []


def test_the_declaration_of_an_add_on_imports_nothing() -> None:
    """It names types of every layer, so that it stands in none, only for type checkers."""
    body = ast.parse((PACKAGE / "addon.py").read_text(encoding="utf-8")).body
    names = [name for node in body if not isinstance(node, ast.If) for name in _imported(node)]
    assert names == []


def test_the_core_imports_nothing_of_the_add_ons() -> None:
    """It loads them by their place, in one function; their package is only a docstring."""
    core = (path for path in PACKAGE.rglob("*.py") if PACKAGE / "addons" not in path.parents)
    for path in core:
        assert not any(
            name.partition(".")[0] == "addons" for name in imported(path.read_text("utf-8"))
        ), path
    package = ast.parse((PACKAGE / "addons" / "__init__.py").read_text("utf-8"))
    assert len(package.body) == 1
    assert ast.get_docstring(package)


def test_add_ons_do_not_import_each_other() -> None:
    found = []
    for path in (PACKAGE / "addons").rglob("*.py"):
        parts = path.relative_to(PACKAGE).parts
        home = parts[1] if len(parts) > 2 else ""
        for name in imported(path.read_text(encoding="utf-8")):
            folder, _, addon = name.partition(".")
            if (
                folder == "addons"
                and (named := addon.partition(".")[0]) in ADDONS
                and named != home
            ):
                found.append(f"{path.relative_to(PACKAGE)} imports {named}")
    assert found == []


def test_the_core_names_no_add_on_by_its_place() -> None:
    named = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".md", ".j2", ".html") and "addons" not in path.parts
        for name in ADDONS
        if f"addons.{name}" in (text := path.read_text("utf-8")) or f"addons/{name}" in text
    ]
    assert named == []


def test_add_ons_use_public_names_and_the_modules_for_them() -> None:
    public = {*pytest_skillopt.__all__, "__version__"}
    used, found = set(), []
    for path in sorted((PACKAGE / "addons").rglob("*.py")):
        for name in imported(path.read_text(encoding="utf-8")):
            home, _, last = name.rpartition(".")
            module = name if name in for_addons() else home
            private = last.startswith("_") and name != "__version__"
            if module in for_addons() and not private:
                used.add(module)
            elif name not in public and home.partition(".")[0] != "addons":
                found.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert found == [], f"use what {TABLE.name} lists, or list it there"
    assert used == for_addons() or not ADDONS, f"take out of {TABLE.name} what none uses"


def test_the_core_names_nothing_of_an_add_on() -> None:
    """Its folder's name as a word; a word of plain English as a quoted name or a command."""
    ordinary = {
        "compare",
        "mine",
        "propose",
        "published",
        "reports",
        "shorten",
    }
    # Each begins with plain text, for which a whole file is searched at once.
    names = [rf"{name}(?<![\w-]{name})(?![\w-])" for name in ADDONS if name not in ordinary]
    modes = [mode.name for addon in addons() for mode in addon.modes]
    for name in (*ADDONS, *modes):
        names += [f"'{name}'", f'"{name}"', rf"--skillopt-{name}\b"]
    names += [rf"pytest-skillopt {name}\b" for name in ADDONS]
    kinds = [addon.settings for addon in addons() if addon.settings]
    settings = (field.name for kind in kinds for field in dataclasses.fields(kind))
    names += [rf"skillopt_{name}\b(?<!\wskillopt_{name})" for name in settings]
    gone = re.compile(r"^REMOVED = \{.*?^\}", re.DOTALL | re.MULTILINE)
    """Sentences that name what to use now."""
    found = [
        f"{path.relative_to(PACKAGE)}: {match[0]}"
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".md", ".j2", ".html")
        and path.relative_to(PACKAGE).parts[:1] != ("addons",)
        for text in [gone.sub("", path.read_text("utf-8"))]
        for name in names
        for match in re.finditer(name, text)
    ]
    assert found == []


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
    """In a function or for annotations as little as when they are loaded; ``addon`` aside."""
    below: dict[str, set[str]] = {}
    paths = {
        ".".join(p.relative_to(PACKAGE).with_suffix("").parts): p for p in PACKAGE.rglob("*.py")
    }
    del paths["addon"]
    for name, path in paths.items():
        names = imported(path.read_text(encoding="utf-8"))
        wanted = {*names, *(each.rpartition(".")[0] for each in names)}
        below[name] = wanted & paths.keys()
    order = graphlib.TopologicalSorter(below)
    order.prepare()


def test_only_its_owner_assigns_to_the_state_of_a_search() -> None:
    """A field of an object is assigned to by the object itself."""
    found = []
    for path in sorted((PACKAGE / "search").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else targets
            parts = [part for target in targets for part in ast.walk(target)]
            found += [
                f"{path.name}:{part.lineno} {ast.unparse(part)}"
                for part in parts
                if isinstance(part, ast.Attribute)
                and isinstance(part.ctx, ast.Store)
                and ("state" in ast.unparse(part.value) or "budget" in ast.unparse(part.value))
            ]
    assert found == []
