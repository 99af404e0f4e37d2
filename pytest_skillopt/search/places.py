"""Checks of tasks: the places at which samples have failed, in the order of the test.

A test with several assertions tells more than that it failed: a sample that fails at the second one
has passed the first. Each place is a *check*, and a task passes if it passes all of its checks. The
probability of a pass is the product of those of its checks, each given that the earlier ones were
passed, so that samples of one task are independent rows for its checks (a continuation-ratio model;
Fienberg 1980, section 6.4). With scores, a clearly better failing score is a later place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

MOST = 3
"""Most checks of one task: the places at which it failed most."""


class Place(NamedTuple):
    """The place at which a sample failed; a later one is larger."""

    level: int = 0
    """Score of the sample in steps of what is a clear difference."""
    line: int = 0
    """Line of the assertion in the test's file; 0 if it is elsewhere."""


class Checks:
    """The checks of all tasks.

    A check has a number: that of its task, times ``MOST``, plus its rank within the task.
    """

    def __init__(self, tasks: int) -> None:
        """Begin with one check for each task, at no known place."""
        self._failures = [Counter[Place]() for _ in range(tasks)]
        self._places: list[list[Place]] = [[Place()] for _ in range(tasks)]

    def __len__(self) -> int:
        """Return the number of checks, those that are not in use included."""
        return MOST * len(self._places)

    def fail(self, task: int, place: Place) -> None:
        """Count a failure of a task."""
        self._failures[task][place] += 1
        self._places[task] = sorted(p for p, _ in self._failures[task].most_common(MOST))

    def number(self, task: int, place: Place) -> int:
        """Return the check that a sample failed: the last one that is not behind the place."""
        rank = bisect_right(self._places[task], place) - 1
        return MOST * task + max(0, rank)

    def of(self, task: int) -> range:
        """Return the numbers of a task's checks, the first one first."""
        return range(MOST * task, MOST * task + len(self._places[task]))

    def outcomes(self, task: int, failed_at: Place | None) -> Iterator[tuple[int, bool]]:
        """Yield the checks that a sample reached, and whether it passed each.

        Args:
            task: of the sample.
            failed_at: place of its failure; None if it passed.
        """
        last = None if failed_at is None else self.number(task, failed_at)
        for check in self.of(task):
            yield check, check != last
            if check == last:
                return

    def by_task(self, values: NDArray[np.float64], fill: float) -> NDArray[np.float64]:
        """Return values of checks as tasks x ranks, with ``fill`` for checks not in use."""
        table = values.reshape(-1, MOST).copy()
        for task, places in enumerate(self._places):
            table[task, len(places) :] = fill
        return table
