"""How verdicts say figures and names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def named(tasks: Iterable[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    names = list(dict.fromkeys(tasks))
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def counted(count: int, noun: str) -> str:
    """``1 task``, ``2 tasks``."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def change_of(before: float, after: float) -> str:
    """``56.3 % to 61.2 % (+4.9 points)``; rates in [0, 1]."""
    return f"{before:.1%} to {after:.1%} ({100 * (after - before):+.1f} points)".replace("%", " %")


def plainly(log_e: float) -> str:
    """An e-value without false precision, from its logarithm: ``0.4``, ``12``, ``1e+09``."""
    value = math.exp(min(log_e, 700.0))
    if value >= 1e6:
        return f"{value:.0e}"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
