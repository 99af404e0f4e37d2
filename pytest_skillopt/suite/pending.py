"""The requests that wait for a free worker."""

from __future__ import annotations

import math
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_skillopt.suite.rollouts import RolloutRequest

_WINDOW = 64
"""How many waiting requests are looked at for one that suits a worker."""


class PendingRequests:
    """Two queues, urgent before the rest, without duplicates. Not thread-safe."""

    def __init__(self) -> None:
        # A plain dict that loses its first entries is slow to iterate over.
        self._urgent: OrderedDict[str, RolloutRequest] = OrderedDict()
        self._later: OrderedDict[str, RolloutRequest] = OrderedDict()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._later)

    def add(self, requests: Iterable[RolloutRequest], *, urgent: bool) -> None:
        """Queue requests; one that waits already moves up when it is urgent now."""
        for request in requests:
            if urgent:
                self._later.pop(request.key, None)
                self._urgent.setdefault(request.key, request)
            elif request.key not in self._urgent:
                self._later.setdefault(request.key, request)

    def take(self, cost: Callable[[RolloutRequest], int]) -> RolloutRequest:
        """Remove and return the request that costs least to start among the first ones.

        Args:
            cost: what starting a request would set up anew, 0 at best.

        Raises:
            IndexError: nothing waits.
        """
        queue = self._urgent or self._later
        if not queue:
            raise IndexError("no request waits")
        best, least = "", math.inf
        for key, request in islice(queue.items(), _WINDOW):
            price = cost(request)
            if price < least:
                best, least = key, price
            if price == 0:
                break
        return queue.pop(best)

    def drop(self, keys: Iterable[str]) -> set[str]:
        """Remove requests by key and return the keys that were there."""
        dropped = set()
        for key in keys:
            for queue in (self._urgent, self._later):
                if queue.pop(key, None) is not None:
                    dropped.add(key)
        return dropped


def start_cost(last: RolloutRequest | None, request: RolloutRequest) -> int:
    """What a process has to set up anew for ``request`` after ``last``: 0 nothing, 3 all."""
    if last is None:
        return 0
    other_version = (request.skill, request.version) != (last.skill, last.version)
    other_module = request.task.partition("::")[0] != last.task.partition("::")[0]
    return 2 * other_version + other_module
