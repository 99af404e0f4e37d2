"""Modules that are imported when one of their functions is called, for declarations.

Type checkers see the modules themselves::

    if TYPE_CHECKING:
        from pytest_skillopt.addons.reports import page
    else:
        page = Later("reports.page")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Later:
    """Stand-in for a module of this folder."""

    def __init__(self, module: str) -> None:
        self._module = f"{__package__}.{module}"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):  # pytest and its plugins look for such names in all objects
            raise AttributeError(name)
        return lambda *values: getattr(import_module(self._module), name)(*values)
