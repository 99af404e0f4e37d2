"""The places of tasks at which samples have failed, in the order of the test.

A test with several assertions tells more than that it failed: a sample that fails at the second one
has passed the first. A task passes if it passes all of its places. The probability of that is the
product of those of its places, each given that the earlier ones were passed, so that samples of one
task are independent rows for its places (a continuation-ratio model; Fienberg 1980, section 6.4).
With scores, a clearly better failing score is a later place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

MOST = 3
"""Most places of one task: those at which it failed most."""


class Place(NamedTuple):
    """The place at which a sample failed; a later one is larger."""

    level: int = 0
    """Score of the sample in steps of what is a clear difference."""
    line: int = 0
    """Line of the assertion in the test's file; 0 if it is elsewhere."""


class Places:
    """The places of all tasks.

    Each has a number: that of its task, times ``MOST``, plus its rank within the task.
    """

    def __init__(self, tasks: int) -> None:
        """Begin with one place for each task, which is not known."""
        self._failures = [Counter[Place]() for _ in range(tasks)]
        self._places: list[list[Place]] = [[Place()] for _ in range(tasks)]
        self._in_use = np.zeros((tasks, MOST), bool)
        """Tasks x ranks."""
        self._in_use[:, 0] = True

    def __len__(self) -> int:
        """Return the number of places, those that are not in use included."""
        return MOST * len(self._places)

    def fail(self, task: int, place: Place) -> None:
        """Count a failure of a task."""
        self._failures[task][place] += 1
        self._places[task] = sorted(p for p, _ in self._failures[task].most_common(MOST))
        self._in_use[task, : len(self._places[task])] = True

    def number(self, task: int, place: Place) -> int:
        """Return the number of the last place of a task that is not behind this one."""
        rank = bisect_right(self._places[task], place) - 1
        return MOST * task + max(0, rank)

    def of(self, task: int) -> slice:
        """Return the numbers of a task's places, the first one first."""
        return slice(MOST * task, MOST * task + len(self._places[task]))

    def outcomes(self, task: int, failed_at: Place | None) -> Iterator[tuple[int, bool]]:
        """Yield the numbers of the places that a sample reached, and whether it passed each.

        Args:
            task: of the sample.
            failed_at: place of its failure; None if it passed.
        """
        last = None if failed_at is None else self.number(task, failed_at)
        for number in range(len(self))[self.of(task)]:
            yield number, number != last
            if number == last:
                return

    def by_task(self, values: NDArray[np.float64], fill: float) -> NDArray[np.float64]:
        """Return values of places as tasks x ranks, with ``fill`` for places not in use."""
        return np.where(self._in_use, values.reshape(-1, MOST), fill)
