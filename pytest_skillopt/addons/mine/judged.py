"""Find out from the source of a failed test whether a judge's verdict is what failed it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.suite.outcome import is_assertion

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


def on_a_verdict(excinfo: pytest.ExceptionInfo[BaseException], verdicts: Sequence[object]) -> bool:
    """Tell whether a failed ``assert``, or the ``if`` around a ``pytest.fail``, is on a verdict.

    The names that carry one hold an object of ``verdicts``, or are bound to an expression with such
    a name in the function that failed.
    """
    if not is_assertion(excinfo.value):
        return False
    entries = [e for e in excinfo.traceback if "_pytest" not in Path(e.path).parts]
    if not entries:
        return False
    entry = entries[-1]
    code, values = entry.frame.code.raw, {**entry.frame.f_globals, **entry.frame.f_locals}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):
        return False
    carry = {name for name, value in values.items() if any(value is each for each in verdicts)}
    nodes = [node for node in ast.walk(tree) if hasattr(node, "lineno")]
    for node in sorted(nodes, key=lambda node: node.lineno):
        if isinstance(node, ast.For) and _uses(node.iter, carry):
            carry |= _names(node.target, ctx=ast.Store)
        elif isinstance(node, ast.Assign) and _uses(node.value, carry):
            carry |= _names(*node.targets, ctx=ast.Store)
    line, judged = entry.lineno + 2 - code.co_firstlineno, None
    for node in nodes:  # outer statements come before inner ones
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            if isinstance(node, ast.Assert | ast.If):
                judged = _uses(node.test, carry)
            elif judged is None and isinstance(node, ast.Expr):
                judged = _uses(node, carry)
    return bool(judged)


def _uses(expression: ast.AST, names: set[str]) -> bool:
    """Tell whether an expression, and each side of an ``and`` or ``or``, uses one of the names."""
    if isinstance(expression, ast.BoolOp):
        return all(_uses(side, names) for side in expression.values)
    return not names.isdisjoint(_names(expression) - _names(expression, ctx=ast.Store))


def _names(*nodes: ast.AST, ctx: type[ast.expr_context] = ast.Load) -> set[str]:
    parts = (part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name))
    return {part.id for part in parts if isinstance(part.ctx, ctx)}
