"""The search ``shorten``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_skillopt import Search


def pytest_skillopt_searches() -> Mapping[str, Callable[[], Search]]:
    """Return the search ``shorten``."""
    return {"shorten": _shorten}


def _shorten() -> Search:
    from pytest_skillopt.plugins.shorten.search import shorten

    return shorten()
