"""The part of a module's source that one of its tests uses."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from pytest_skillopt.tasks.identity import dump, function_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def used_part(tree: ast.Module, names: Iterable[str], is_test: Callable[[str], bool]) -> str:
    """Return the statements of a module that bind ``names``, and all that these use in turn.

    What may act without being named counts always: a statement that binds no name, and a decorated
    function or class, such as a fixture. Tests do not count; ``is_test`` knows them by name.
    """
    docstring = ast.get_docstring(tree, clean=False) is not None
    statements = [_without_tests(each, is_test) for each in tree.body[docstring:]]
    wanted = set(names)
    used: set[ast.stmt] = set()
    before = -1
    while before < len(used):
        before = len(used)
        for statement in statements:
            if statement in used:
                continue
            bound = bound_names(statement)
            if not bound or bound & wanted or _is_registered(statement, is_test):
                used.add(statement)
                wanted |= _mentioned(statement)
    return "".join(dump(statement) for statement in statements if statement in used)


def names_in_test(text: str) -> set[str]:
    """Return the names that the source of a test's function uses.

    Those of decorators count, which may wrap the function; their arguments are parameters or marks.
    """
    node = function_in(text)
    if node is None:
        return set()
    called = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    return set().union(*map(_mentioned, (node.args, *node.body, *called)))


def bound_names(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds in the scope it stands in; none for ``import *``."""
    if isinstance(statement, _FUNCTIONS | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    if isinstance(statement, ast.ImportFrom):
        return {alias.asname or alias.name for alias in statement.names} - {"*"}
    inner = list(blocks(statement))
    within = {node for each in inner for node in ast.walk(each)}
    found = set().union(*map(bound_names, inner))
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in within:
            found.add(node.id)
    return found


def blocks(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements directly within the blocks of a module or statement."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from blocks(child)


def _is_registered(statement: ast.stmt, is_test: Callable[[str], bool]) -> bool:
    if isinstance(statement, _FUNCTIONS):
        return bool(statement.decorator_list) and not is_test(statement.name)
    return isinstance(statement, ast.ClassDef) and bool(statement.decorator_list)


def _mentioned(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _without_tests(statement: ast.stmt, is_test: Callable[[str], bool]) -> ast.stmt:
    """Return a class without its tests: they are no part of each other."""
    if not isinstance(statement, ast.ClassDef):
        return statement
    body = [_without_tests(each, is_test) for each in statement.body]
    kept = [each for each in body if not (isinstance(each, _FUNCTIONS) and is_test(each.name))]
    fields = {name: getattr(statement, name) for name in statement._fields}
    return ast.ClassDef(**{**fields, "body": kept})
