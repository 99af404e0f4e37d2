"""Fixtures of the tests of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.model.cache import DiskCache

if TYPE_CHECKING:
    from collections.abc import Iterator

    import diskcache


@pytest.fixture(autouse=True)
def close_databases(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the databases that a test opens: from Python 3.13 on sqlite3 warns of the others."""
    opened: list[diskcache.Cache] = []
    start = DiskCache._start

    def note(cache: DiskCache) -> None:
        start(cache)
        opened.append(cache._cache)

    monkeypatch.setattr(DiskCache, "_start", note)
    yield
    for database in opened:
        database.close()
