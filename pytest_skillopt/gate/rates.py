"""Pass rates of a suite with the uncertainty of the rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.gate.forecast import interval
from pytest_skillopt.run.result import Rate

if TYPE_CHECKING:
    from collections.abc import Iterable


def suite_rate(counts: Iterable[tuple[int, int]]) -> Rate | None:
    """Mean over tasks of passed / measured, with a 95 % interval over repeated rollouts.

    Args:
        counts: (passed, measured) of each task; tasks that were never measured are left out.

    Returns:
        None when no task was measured.
    """
    known = [(passed, n) for passed, n in counts if n]
    if not known:
        return None
    rate = sum(passed / n for passed, n in known) / len(known)
    low, high = interval(known)
    return Rate(
        rate=rate,
        low=min(low, rate),
        high=max(high, rate),
        tasks=len(known),
        samples=sum(n for _, n in known),
    )
