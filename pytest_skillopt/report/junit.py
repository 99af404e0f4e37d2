"""Properties of tasks in JUnit files, and a link in the page of pytest-html."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup

from pytest_skillopt.report import words
from pytest_skillopt.report.advice import headline
from pytest_skillopt.untrusted import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_skillopt.run.result import Arm, Result, TaskRow


def task_properties(row: TaskRow) -> list[tuple[str, str]]:
    """List the properties of a task's test case; their names begin with ``skillopt_``.

    Rates are in [0, 1] with four decimals, costs in US dollars with six; a missing measurement has
    no property. With two versions, ``_after`` marks the figures of the second.
    """
    said = [("split", row.split)] if row.split else []
    said += _arm(row.before, "")
    if row.after is not None:
        said += [*_arm(row.after, "_after"), ("change", row.change)]
    if marks := words.marks(row):
        said.append(("marks", ", ".join(marks)))
    said += [("calls", str(row.calls)), ("tokens", str(row.tokens))]
    if row.cost is not None:
        said.append(("cost", f"{row.cost:.6f}"))
    return [(f"skillopt_{name}", value) for name, value in said]


def _arm(arm: Arm, suffix: str) -> Iterator[tuple[str, str]]:
    rate = words.pass_rate(arm)
    if rate is not None:
        yield f"pass_rate{suffix}", f"{rate:.4f}"
    yield f"passed{suffix}", str(arm.passed)
    yield f"samples{suffix}", str(arm.n)
    if arm.score is not None:
        yield f"score{suffix}", f"{arm.score:.4f}"
    if arm.errors:
        yield f"errors{suffix}", str(arm.errors)


def summary_link(result: Result, report: Path, page: Path) -> str:
    """Make the HTML link to ``report`` for ``page``, which pytest-html writes."""
    way = os.path.relpath(report.absolute(), page.absolute().parent).replace(os.sep, "/")
    return str(
        Markup('<p>skillopt: {answer}. <a href="{url}">The report of run {run}</a></p>').format(
            answer=headline(result).answer, url=quote(way), run=printable(result.run)
        )
    )
