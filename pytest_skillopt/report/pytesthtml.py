"""The link from pytest-html's page to ours, for those who have that plugin; it is not needed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup

from pytest_skillopt.report.advice import headline
from pytest_skillopt.untrusted import printable

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_skillopt.run.result import Result


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


def task_extra(report: Path, page: Path) -> dict[str, str | None]:
    """The entry of ``report.extras`` that links a test case, in the form pytest-html takes."""
    return {
        "name": "skillopt report",
        "format_type": "url",
        "content": _relative(report, page),
        "mime_type": None,
        "extension": None,
    }


def _relative(report: Path, page: Path) -> str:
    return quote(os.path.relpath(report.absolute(), page.absolute().parent).replace(os.sep, "/"))
