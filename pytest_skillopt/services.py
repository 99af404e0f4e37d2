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
        self.forget: Callable[[str], None] = lambda prefix: None
        """Gives up the calls of a worker that has ended."""

    def open(self, meter: Meter, cache: ReplyCache | None) -> None:
        """Begin to answer."""
        self.forget = meter.forget
        self.table |= {
            "throttle.ask": meter.ask,
            "throttle.done": meter.done,
            "throttle.note": meter.note,
        }
        if cache is not None:
            self.table |= {"cache.get": cache.get, "cache.set": cache.set}
