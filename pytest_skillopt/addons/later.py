"""Functions that are imported when they are called: every session reads the declarations."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def later(place: str) -> Callable[..., Any]:
    """Return a function that calls another one, ``module:name`` of this folder."""
    module, _, name = place.partition(":")
    return lambda *values: getattr(import_module(f"{__package__}.{module}"), name)(*values)
