"""What the controller does for its workers: model calls, the limits and the cache, by name.

``worker.py`` holds the other end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt.model.limits import Meter
    from pytest_skillopt.model.types import Role
    from pytest_skillopt.models import Models


class Services:
    """A table that is filled when the run is opened, after the workers have come up."""

    def __init__(self) -> None:
        self.table: dict[str, Callable[..., Any]] = {}
        self.forget: Callable[[str], None] = lambda prefix: None
        """Gives up the calls of a worker that has ended."""

    def open(self, meter: Meter, models: Models) -> None:
        """Begin to answer."""

        def complete(role: Role, messages: Any, options: dict[str, Any]) -> dict[str, Any]:
            return models.get(role).complete(messages, **options).to_json()

        self.forget = meter.forget
        cache = models.replies.cache if models.replies is not None else None
        self.table |= {
            "model.complete": complete,
            "throttle.ask": meter.ask,
            "throttle.done": meter.done,
            "throttle.note": meter.note,
        }
        if cache is not None:
            self.table |= {"cache.get": cache.get, "cache.set": cache.set}
