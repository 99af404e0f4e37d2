"""Searches ``shorten`` and ``trials,shorten``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_skillopt import Search


def pytest_skillopt_searches() -> Mapping[str, Callable[[], Search]]:
    """Return the searches that shorten."""
    return {"shorten": _shorten, "trials,shorten": _trials_shorten}


def _shorten() -> Search:
    from pytest_skillopt.plugins.shorten.search import shorten

    return shorten()


def _trials_shorten() -> Search:
    from pytest_skillopt.plugins.shorten.search import trials_shorten

    return trials_shorten()
