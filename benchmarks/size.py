"""How much house there is, and whether it is more than was allowed: ``python benchmarks/size.py``.

Prints lines and modules of ``pytest_skillopt/``, settings and options, the lines that
``pytest --help`` grows by, import circles and imports of a part that stands above the importer.
Exits with 1 where a bar is broken.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_skillopt.settings import declared, published

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PACKAGE = Path(__file__).parent.parent / "pytest_skillopt"
LATER = ("harness", "evals", "bridges", "cases", "checks", "mine", "watch")
LATER_MODULES = ("gate.shorter", "modes.doctor", "run.pending", "search.shorten")
"""Modules of capabilities that came later, which the bar on modules leaves out."""
LATER_SETTINGS = (
    "harness",
    "harness_env",
    "sandbox",
    "files",
    "train_description",
    "max_cost_increase",
)
"""Those of agents in a harness, and of a skill that is more than the body of its SKILL.md."""
BUDGETS = {
    "what there was at first": 23_000,
    "agents in a harness": 1_600,
    "evals.json, bridges, transcripts": 2_600,
    "descriptions, references, length": 900,
    "watching a run": 1_300,
}
"""Most lines. Much of the later three stands in parts that were there before (``skill/``,
``propose/``, ``report/``), so it is their sum that is compared with the whole package."""
PAGE = "watch/templates/*"
"""Counted with the Python lines: the page of a watched run is part of its budget."""
MOST = {"lines": sum(BUDGETS.values()), "modules": 140, "settings": 45, "lines of help": 120}
LOOSE = "(no folder)"
FLOORS = (
    ("skill", "gate"),
    ("model",),
    ("suite", "harness"),
    ("run",),
    ("edits",),
    ("search", "published", "evals", "bridges"),
    ("report",),
    ("modes", "propose", "watch", "mine"),
)
"""From the ground up: a part imports from its own floor and those below it. ``published`` may be
asked for by name from below, in a function: it is what a setting chose."""


class Import(NamedTuple):
    """One module names another, dotted, in an import that runs."""

    where: str
    what: str
    at_start: bool
    """When the module is loaded, not in a function."""
    annotates: bool
    """It is there for annotations alone."""


def modules() -> dict[str, str]:
    """Source by dotted name below the package."""
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path.read_text("utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def part(name: str) -> str:
    head, dot, _ = name.partition(".")
    return head if dot else head if head in LATER else LOOSE


def imports(name: str, source: str, known: Mapping[str, str]) -> Iterator[Import]:
    """Imports of the package's own modules, those for annotations and in functions too."""
    pending: list[tuple[ast.AST, bool, bool]] = [(ast.parse(source), True, False)]
    while pending:
        node, at_start, annotates = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            annotates = True
        if isinstance(node, ast.ImportFrom) and node.module:
            bare = node.module.removeprefix("pytest_skillopt").removeprefix(".")
            for alias in node.names:
                for found in (f"{bare}.{alias.name}".strip("."), bare):
                    if node.module.startswith("pytest_skillopt") and found in known:
                        yield Import(name, found, at_start, annotates)
                        break
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        children = ast.iter_child_nodes(node)
        pending += [(child, at_start and not inside, annotates) for child in children]


def circles(found: list[Import]) -> list[str]:
    """Modules that import each other, as one chain each."""
    below: dict[str, set[str]] = {}
    for entry in found:
        below.setdefault(entry.where, set()).add(entry.what)
    chains: dict[frozenset[str], str] = {}

    def walk(trail: list[str], done: set[str]) -> None:
        for name in sorted(below.get(trail[-1], ())):
            if name in trail:
                chain = [*trail[trail.index(name) :], name]
                chains.setdefault(frozenset(chain), " -> ".join(chain))
            elif name not in done:
                done.add(name)
                walk([*trail, name], done)

    for start in sorted(below):
        walk([start], set())
    return list(chains.values())


def upward(found: list[Import]) -> list[str]:
    """Imports of a part that stands on a floor above that of the importer."""
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    return [
        f"{entry.where} imports {entry.what}"
        for entry in found
        if not entry.annotates
        and floor.get(part(entry.where), len(FLOORS)) < floor.get(part(entry.what), 0)
        and (entry.at_start or part(entry.what) != "published")
    ]


def help_lines() -> int:
    """Lines that ``pytest --help`` grows by, at 80 columns."""
    counts = []
    for arguments in (["-p", "no:skillopt"], []):
        with tempfile.TemporaryDirectory() as folder:
            said = subprocess.run(
                [sys.executable, "-m", "pytest", *arguments, "--help"],
                cwd=folder,
                env=os.environ | {"COLUMNS": "80"},
                capture_output=True,
                text=True,
                check=True,
            )
        counts.append(said.stdout.count("\n"))
    return next(after - before for before, after in pairwise(counts))


def main() -> None:
    sources = modules()
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for name, source in sources.items():
        lines[part(name)] += source.count("\n")
        files[part(name)] += 1
    found = [entry for name, source in sources.items() for entry in imports(name, source, sources)]
    lines["watch"] += sum(path.read_text("utf-8").count("\n") for path in PACKAGE.glob(PAGE))
    print(f"{'part':<12} {'lines':>7} {'modules':>8}")
    for name in sorted(lines):
        print(f"{name:<12} {lines[name]:>7,} {files[name]:>8}")
    settings = [field for field in declared() if field.name not in LATER_SETTINGS]
    counts = {
        "lines": lines.total(),
        "modules": sum(part(name) not in LATER and name not in LATER_MODULES for name in sources),
        "settings": len(settings),
        "lines of help": help_lines(),
    }
    print()
    for name, count in counts.items():
        print(f"{name}: {count:,} of {MOST[name]:,}" + (" TOO MANY" * (count > MOST[name])))
    options = sum(field.metadata["option"] for field in settings)
    print(f"options: {options}; settings of published mechanisms: {len(published())}")
    faults = [f"circle: {chain}" for chain in circles(found)]
    faults += [f"upward: {arrow}" for arrow in upward(found)]
    print("\n".join(faults) or "no import circle, no arrow upward")
    sys.exit(bool(faults) or any(count > MOST[name] for name, count in counts.items()))


if __name__ == "__main__":
    main()
