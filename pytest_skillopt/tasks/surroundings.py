"""The parts of a project that a test's outcome depends on, besides its function and the skill.

They are what the function uses of its own module, the files of the project that the module imports,
and the conftest files that apply. Other tests of the module, and files that no import statement
names, do not count; nothing depends on which tests were collected.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import site
import sys
import sysconfig
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_skillopt.internals import fixture_functions
from pytest_skillopt.tasks.used_part import blocks, names_in_test, used_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_CALLED_BY_PYTEST = frozenset(
    {
        *("setup_function", "setup_module", "teardown_function", "teardown_module"),
        *("setUpModule", "tearDownModule"),
    }
)


_MODULES = 4
"""Number of modules of tests whose tree is kept; the tests of one module follow each other."""


class _Place(NamedTuple):
    """Place of a module on disk."""

    file: Path | None = None
    within: tuple[str, ...] = ()
    """Folders in which the submodules of a package lie."""


class Surroundings:
    """Digests of what tests use of the project's files; each file is read once."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._root = config.rootpath
        self._real = self._root.resolve()
        installed = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
        installed += [*site.getsitepackages(), site.getusersitepackages()]
        self._installed = {p for at in map(Path, installed) for p in (at, at.resolve())}
        plugins: list[str] = config.getoption("plugins", None) or []
        self._plugins = [name for name in plugins if not name.startswith("no:")]
        self.name_of = functools.cache(self._name_of)
        self._tree = functools.lru_cache(_MODULES)(_parsed)
        self._place = functools.cache(self._find)
        self._imports = functools.cache(self._imported)
        self._conftests = functools.cache(self._conftests_of)
        self._digest = functools.cache(_digest)
        self._closure = functools.cache(self._close)
        self._part = functools.cache(self._used_part)

    @classmethod
    def of(cls, config: pytest.Config) -> Surroundings:
        if _SURROUNDINGS not in config.stash:
            config.stash[_SURROUNDINGS] = cls(config)
        return config.stash[_SURROUNDINGS]

    def digest(self, item: pytest.Item, text: str) -> str:
        """Return a digest of the surroundings of an item, whose function has this source."""
        begin = self._conftests(item.path.parent) | self._files(self._plugins)
        begin |= {file for each in fixture_functions(item) if (file := file_of_code(each))}
        part = ""
        node = item.getparent(pytest.Module)
        file = file_of_module(getattr(node, "obj", None))
        if node is not None and file is not None:
            names = names_in_test(text) | _CALLED_BY_PYTEST | _outer_class(item)
            part = self._part(file, frozenset(names), node)
            begin |= self._imports(file) | self._files(_parents(node.obj.__name__)[:-1])
            begin |= self._files(_plugins_of(node.obj))
            begin.discard(file)
        files = self._closure(frozenset(begin))
        return hashlib.sha256(json.dumps([part, files]).encode()).hexdigest()

    def _used_part(self, file: Path, names: frozenset[str], node: pytest.Module) -> str:
        tree = self._tree(file)
        return "" if tree is None else used_part(tree, names, node.funcnamefilter)

    def _conftests_of(self, folder: Path) -> set[Path]:
        """Return the conftest files that apply in a folder, and the plugins that they name."""
        found: set[Path] = set()
        for plugin in self._config.pluginmanager.get_plugins():
            file = file_of_module(plugin)
            if file and file.name == "conftest.py" and folder.is_relative_to(file.parent):
                found |= {file} | self._files(_parents(plugin.__name__)[:-1])
                found |= self._files(_plugins_of(plugin))
        return found

    def _close(self, begin: frozenset[Path]) -> str:
        """Return a digest of the project's own among files, and of all that these import."""
        found: dict[str, str] = {}
        waiting = list(begin)
        while waiting:
            file = waiting.pop()
            name = self.name_of(file)
            if name and name not in found:
                found[name] = self._digest(file)
                waiting += self._imports(file)
        return hashlib.sha256(json.dumps(sorted(found.items())).encode()).hexdigest()

    def _name_of(self, file: Path) -> str:
        """Return a file's path in the project, with ``/``; empty if it is outside or installed."""
        if not file.is_absolute():  # such as <string>
            return ""
        for path, root in ((file.resolve(), self._real), (file, self._root)):
            if path.is_relative_to(root):
                folders = path.parents[: len(path.relative_to(root).parts) - 1]
                name = path.relative_to(root).as_posix()
                return "" if any(map(self._is_installed, folders)) else name
        return ""

    def _is_installed(self, folder: Path) -> bool:
        return folder in self._installed or (folder / "pyvenv.cfg").exists()

    def _imported(self, file: Path) -> set[Path]:
        """Return the files of the modules that a file's import statements name, wherever."""
        tree = _parsed(file) if self.name_of(file) else None
        found: set[Path] = set()
        for statement in _statements(tree) if tree else ():
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    found |= self._files(_parents(alias.name))
            elif isinstance(statement, ast.ImportFrom):
                names = [alias.name for alias in statement.names]
                if statement.level:
                    found |= _beside(file.parents[statement.level - 1], statement.module, names)
                elif statement.module:
                    found |= self._files(_parents(statement.module))
                    found |= self._files(f"{statement.module}.{name}" for name in names)
        return found

    def _files(self, names: Iterable[str]) -> set[Path]:
        return {place.file for place in map(self._place, names) if place.file is not None}

    def _find(self, name: str) -> _Place:
        """Find a module as it was imported, else as it would be, without importing it."""
        if name == "conftest":
            return _Place()  # Several files have this name; those that apply are asked for.
        module = sys.modules.get(name)
        if module is not None:
            return _Place(file_of_module(module), tuple(getattr(module, "__path__", ())))
        above = name.rpartition(".")[0]
        within = self._place(above).within if above else None
        if within == ():
            return _Place()
        try:
            spec = PathFinder.find_spec(name, within)
        except KeyError:  # a folder without __init__.py in a package that was not imported
            folders = (Path(path) / name.rpartition(".")[2] for path in within or ())
            return _Place(None, tuple(str(folder) for folder in folders if folder.is_dir()))
        except (ImportError, OSError, ValueError):
            return _Place()
        if spec is None:
            return _Place()
        file = Path(spec.origin) if spec.has_location and spec.origin else None
        return _Place(file, tuple(spec.submodule_search_locations or ()))


_SURROUNDINGS = pytest.StashKey[Surroundings]()


def file_of_code(function: object) -> Path | None:
    """Return the file that a function was defined in, if it is known."""
    code = getattr(function, "__code__", None)
    path = Path(code.co_filename) if isinstance(code, CodeType) else Path()
    return path if path.is_absolute() else None


def file_of_module(module: object) -> Path | None:
    """Return the file of a module, None for another object."""
    file = getattr(module, "__file__", None)
    if not isinstance(module, ModuleType) or not isinstance(file, str):
        return None
    return Path(os.path.abspath(file))


def _parents(name: str) -> list[str]:
    """Return the names of the packages of a module, and of the module."""
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts) + 1)]


def _plugins_of(module: ModuleType) -> list[str]:
    names: Any = getattr(module, "pytest_plugins", ())
    return [names] if isinstance(names, str) else list(names)


def _outer_class(item: pytest.Item) -> set[str]:
    """Return the name of the class at the top of a module in which a test stands."""
    qualified = getattr(getattr(item, "cls", None), "__qualname__", "")
    return {qualified.partition(".")[0]}


def _beside(folder: Path, module: str | None, names: Iterable[str]) -> set[Path]:
    """Return the files that an import relative to a folder may name."""
    parts = module.split(".") if module else []
    packages = [folder.joinpath(*parts[:n]) for n in range(len(parts) + 1)]
    found = {folder / "__init__.py"}
    for place in (*packages[1:], *(packages[-1] / name for name in names if name != "*")):
        found |= {place / "__init__.py", place.with_name(f"{place.name}.py")}
    return {path for path in found if path.is_file()}


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    for statement in blocks(tree):
        yield statement
        yield from _statements(statement)


def _parsed(file: Path) -> ast.Module | None:
    if file.suffix != ".py":
        return None
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""
