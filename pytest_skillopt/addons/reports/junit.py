"""Properties of a task's test case in the file of ``--junitxml``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.report.words import marks, pass_rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt.run.result import Arm, TaskRow


def task_properties(row: TaskRow) -> list[tuple[str, str]]:
    """List the properties of a task's JUnit test case; their names begin with ``skillopt_``.

    Rates are in [0, 1] with four decimals, costs in US dollars with six; a missing measurement has
    no property. With two versions, ``_after`` marks the figures of the second.
    """
    said = [("split", row.split)] if row.split else []
    said += _arm_properties(row.before, "")
    if row.after is not None:
        said += [*_arm_properties(row.after, "_after"), ("change", row.change)]
    if own := marks(row):
        said.append(("marks", ", ".join(own)))
    said += [("calls", str(row.calls)), ("tokens", str(row.tokens))]
    if row.cost is not None:
        said.append(("cost", f"{row.cost:.6f}"))
    return [(f"skillopt_{name}", value) for name, value in said]


def _arm_properties(arm: Arm, suffix: str) -> Iterator[tuple[str, str]]:
    rate = pass_rate(arm)
    if rate is not None:
        yield f"pass_rate{suffix}", f"{rate:.4f}"
    yield f"passed{suffix}", str(arm.passed)
    yield f"samples{suffix}", str(arm.n)
    if arm.score is not None:
        yield f"score{suffix}", f"{arm.score:.4f}"
    if arm.errors:
        yield f"errors{suffix}", str(arm.errors)
