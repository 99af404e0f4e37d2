"""Pass rates of a task in its test case of a JUnit file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.report import figures

if TYPE_CHECKING:
    from pytest_skillopt.run.result import TaskRow


def properties(row: TaskRow) -> list[tuple[str, str]]:
    """List the pass rates of a task, in [0, 1] with four decimals, of each version that it has.

    ``skillopt_pass_rate`` is that of the first version, with ``_after`` that of the second, with
    ``_none`` that without any skill.
    """
    found = []
    for suffix, arm in (("", row.before), ("_after", row.after), ("_none", row.none)):
        rate = figures.pass_rate(arm) if arm else None
        if rate is not None:
            found.append((f"skillopt_pass_rate{suffix}", f"{rate:.4f}"))
    return found
