"""If pytest or xdist are not as expected, the session ends at its start and says so."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pytest_skillopt
from pytest_skillopt.suite import internals
from pytest_skillopt.suite.folders import SkillVersions

PACKAGE = Path(pytest_skillopt.__file__).parent
INTERNALS = sorted(PACKAGE.rglob("internals.py"))
PYTHON = {"_exit", "_current_frames", "_SubParsersAction"}
"""Private names of the standard library that are documented or have no other way."""


def test_the_installed_versions_are_as_expected() -> None:
    internals.probe()
    internals.probe(internals.xdist_names(), ("pytest-xdist",))
    for path in INTERNALS:
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        internals.probe(importlib.import_module(module).NAMES)


def test_a_pytest_without_a_name_is_refused() -> None:
    expected = rf"with pytest {pytest.__version__}, pluggy .*_pytest.main: _no_such_name"
    with pytest.raises(pytest.UsageError, match=expected):
        internals.probe({pytest.Session: "_setupstate _no_such_name"})


def test_an_xdist_without_a_name_is_refused() -> None:
    changed = {owner: f"{names} _no_such_name" for owner, names in internals.xdist_names().items()}
    with pytest.raises(pytest.UsageError, match=r"pytest-xdist .*xdist\..*: _no_such_name"):
        internals.probe(changed, ("pytest-xdist",))


@functools.cache
def _names(module: Path) -> tuple[set[str], set[str]]:
    """The private attributes that a module uses, and the names that it defines itself."""
    private, defined = set(), set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            if re.match("_[^_]", node.attr):
                private.add(node.attr)
            if isinstance(node.ctx, ast.Store):
                defined.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            defined.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            defined.add(node.target.id)
    return private, defined


def test_every_private_name_that_is_used_is_looked_for() -> None:
    for path in INTERNALS:
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        known = [*importlib.import_module(module).NAMES.values()]
        if module == internals.__name__:
            known += internals.xdist_names().values()
        probed = {name for names in known for name in names.split()}
        assert _names(path)[0] <= probed, path


def test_nothing_private_of_others_is_used_elsewhere() -> None:
    elsewhere = [m for m in PACKAGE.rglob("*.py") if m not in INTERNALS]
    own = PYTHON.union(*(_names(module)[1] for module in elsewhere))
    used = {(module.name, name) for module in elsewhere for name in _names(module)[0]}
    assert {(module, name) for module, name in used if name not in own} == set()
    for module in elsewhere:
        source = module.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(from|import) (_pytest|xdist|execnet)\b", source, re.M), module


@pytest.mark.parametrize("error", [EOFError("the gateway is gone"), OSError("refused")])
def test_a_worker_that_dies_while_it_is_started_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internals, "_RESTART_PAUSE", 0.0)
    tries = [error, error, "a worker"]

    def clone(node: object) -> object:
        found = tries.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    told: list[str] = []
    dsession = SimpleNamespace(_max_worker_restart=8, _clone_node=clone)
    plugins = SimpleNamespace(get_plugin=lambda name: dsession)
    config: Any = SimpleNamespace(pluginmanager=plugins, getoption=lambda *names: None)
    internals.adopt_restarts(config, told.append)
    node = SimpleNamespace(gateway=SimpleNamespace(id="gw0"))
    assert dsession._clone_node(node) == "a worker"
    tries[:] = [error] * 9
    assert dsession._clone_node(node) is None
    assert "gw0 cannot be started again" in told[0]


def test_a_private_module_that_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_pytest.stash", None)
    with pytest.raises(pytest.UsageError, match=r"with pytest .*_pytest\.stash"):
        runpy.run_path(internals.__file__)


def test_directories_of_versions_do_not_pile_up() -> None:
    versions = SkillVersions()
    versions.add_skill("skills/demo/SKILL.md", {"notes.md": b"n", "SKILL.md": b"old"})
    made = []
    for number in range(40):
        versions.add_version("skills/demo/SKILL.md", str(number), str(number).encode())
        made.append(versions.directory("skills/demo/SKILL.md", str(number)))
        assert made[-1].name == "demo"
        assert (made[-1] / "SKILL.md").read_bytes() == str(number).encode()
        assert (made[-1] / "notes.md").read_bytes() == b"n"
    assert sum(directory.exists() for directory in made) == 16
    again = versions.directory("skills/demo/SKILL.md", "0")
    assert (again / "SKILL.md").read_bytes() == b"0"
    versions.close()
    assert not any(directory.exists() for directory in [*made, again])
