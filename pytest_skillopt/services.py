"""What the controller does for its workers: the limits and the cache, asked for by name.

``worker.py`` holds the other end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt.model.cache import ReplyCache
    from pytest_skillopt.model.limits import Meter


class Services:
    """A table that is filled when the run is opened, after the workers have come up."""

    def __init__(self) -> None:
        self.table: dict[str, Callable[..., Any]] = {}
        self._limits: Meter | None = None

    def open(self, limits: Meter, cache: ReplyCache | None) -> None:
        """Begin to answer."""
        self._limits = limits
        self.table |= {
            "throttle.ask": limits.ask,
            "throttle.done": lambda call, usage, account, *rest: limits.done(
                call, usage, _account(account), *rest
            ),
            "throttle.note": lambda usage, account: limits.note(usage, _account(account)),
        }
        if cache is not None:
            self.table |= {"cache.get": cache.get, "cache.set": cache.set}

    def forget(self, prefix: str) -> None:
        """Give up the calls of a worker that has ended."""
        if self._limits is not None:
            self._limits.forget(prefix)


def _account(account: list[str]) -> tuple[str, str, str]:
    """JSON knows no tuples."""
    role, stage, task = account
    return role, stage, task
