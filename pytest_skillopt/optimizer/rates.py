"""Pass rates of a suite with the uncertainty of the rollouts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_skillopt.report.result import Rate

if TYPE_CHECKING:
    from collections.abc import Iterable

_Z = 1.959964
"""Standard normal quantile of a two-sided 95 % interval."""


def suite_rate(counts: Iterable[tuple[int, int]]) -> Rate | None:
    """Mean over tasks of passed / measured, with a 95 % interval over repeated rollouts.

    The variance of a task's rate is estimated as ``q (1 - q) / n`` with ``q = (s + 1) / (n + 2)``,
    so that a task which passed every time is not taken for certain; the tasks are given, not
    drawn.

    Args:
        counts: (passed, measured) of each task; tasks that were never measured are left out.

    Returns:
        None when no task was measured.
    """
    known = [(passed, n) for passed, n in counts if n]
    if not known:
        return None
    rate = sum(passed / n for passed, n in known) / len(known)
    smoothed = [((passed + 1) / (n + 2), n) for passed, n in known]
    spread = _Z * math.sqrt(sum(q * (1 - q) / n for q, n in smoothed)) / len(known)
    return Rate(
        rate=rate,
        low=max(0.0, rate - spread),
        high=min(1.0, rate + spread),
        tasks=len(known),
        samples=sum(n for _, n in known),
    )
