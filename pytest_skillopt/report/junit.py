"""What a JUnit file says of a task beyond passed or failed."""

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
    """The properties of a task's test case, all names beginning with ``skillopt_``.

    Rates are in [0, 1] with four decimals, costs in US dollars with six; what was not measured has
    no property. With two versions, ``_after`` marks the figures of the second.
    """
    return [(f"skillopt_{name}", value) for name, value in _properties(row)]


def _properties(row: TaskRow) -> Iterator[tuple[str, str]]:
    if row.split:
        yield "split", row.split
    yield from _arm(row.before, "")
    if row.after is not None:
        yield from _arm(row.after, "_after")
        yield "change", row.change
    marks = words.marks(row)
    if marks:
        yield "marks", ", ".join(marks)
    yield "calls", str(row.calls)
    yield "tokens", str(row.tokens)
    if row.cost is not None:
        yield "cost", f"{row.cost:.6f}"


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
    """HTML for the summary of pytest-html (hook ``pytest_html_results_summary``).

    Args:
        result: the run.
        report: our ``report.html``.
        page: the file that pytest-html writes; the link is relative to it.
    """
    said = headline(result)
    return str(
        Markup('<p>skillopt: {answer}. <a href="{url}">The report of run {run}</a></p>').format(
            answer=said.answer, url=_relative(report, page), run=printable(result.run)
        )
    )


def _relative(report: Path, page: Path) -> str:
    return quote(os.path.relpath(report.absolute(), page.absolute().parent).replace(os.sep, "/"))
