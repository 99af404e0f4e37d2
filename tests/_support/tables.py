"""Tests over a table: one test that names every row that fails."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Test = Callable[..., None]

FAILURES = (Exception, pytest.fail.Exception)


def each_row(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with each row of a table, as ``pytest.mark.parametrize`` would.

    It stays one test, so its rows share their fixtures: for questions to one function, not for
    sessions.

    Args:
        names: The test's argument of each column; of a single column the name.
        rows: Values of the arguments; of a single column the value itself.
    """
    table = [row if isinstance(names, tuple) else (row,) for row in rows]
    columns = names if isinstance(names, tuple) else (names,)

    def over_the_table(test: Test) -> Test:
        signature = inspect.signature(test)
        fixtures = [p for p in signature.parameters.values() if p.name not in columns]

        @functools.wraps(test)
        def run(**values: Any) -> None:
            failures = []
            for row in table:
                try:
                    test(**values, **dict(zip(columns, row, strict=True)))
                except FAILURES as failure:
                    failure.add_note(f"in the row {row!a}")
                    failures.append(failure)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(table)} rows", failures)

        # Pytest reads from it which fixtures the test wants.
        vars(run)["__signature__"] = signature.replace(parameters=fixtures)
        return run

    return over_the_table
