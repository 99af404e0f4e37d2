"""Figures of a task in its test case of a JUnit file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.report import figures

if TYPE_CHECKING:
    from pytest_skillopt.run.result import Arm, TaskRow


def properties(row: TaskRow) -> list[tuple[str, str]]:
    """List the properties of a task's JUnit test case; their names begin with ``skillopt_``.

    Rates are in [0, 1] with four decimals, costs in US dollars with six; a missing measurement has
    no property. With two versions, ``_after`` marks the figures of the second.
    """
    values = {"split": row.split, **_arm_properties(row.before, "")}
    if row.after is not None:
        values |= {**_arm_properties(row.after, "_after"), "change": row.change}
    if row.none is not None:
        values |= _arm_properties(row.none, "_none")
    values |= {
        "marks": ", ".join(figures.marks(row)),
        "calls": str(row.calls),
        "tokens": str(row.tokens),
        "cost": _decimal(row.cost, 6),
    }
    return [(f"skillopt_{name}", value) for name, value in values.items() if value]


def _arm_properties(arm: Arm, suffix: str) -> dict[str, str]:
    return {
        f"pass_rate{suffix}": _decimal(figures.pass_rate(arm), 4),
        f"passed{suffix}": str(arm.passed),
        f"samples{suffix}": str(arm.n),
        f"score{suffix}": _decimal(arm.score, 4),
        f"errors{suffix}": str(arm.errors or ""),
    }


def _decimal(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
