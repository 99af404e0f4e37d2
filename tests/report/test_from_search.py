"""Samples of the search are not called fresh, in any of the reports."""

from __future__ import annotations

from collections.abc import Callable

from tables import each_row

from pytest_skillopt.report.markdown import render_summary
from pytest_skillopt.report.page import render_html
from pytest_skillopt.report.terminal import lines
from pytest_skillopt.run.result import Result

MakeResult = Callable[..., Result]
REPORTS = {
    "terminal": lambda result: "\n".join(line.text for line in lines(result, 200)),
    "report.html": render_html,
    "summary.md": render_summary,
}
SAID = "The rate before of 9 tasks is that of the search; all else is fresh."


def _searched(result: Result) -> Result:
    (skill,) = result.skills
    mixed = skill.model_copy(update={"from_search": 9, "reason": "it rose"})
    return result.model_copy(update={"skills": [mixed], "reason": "it rose"})


@each_row("report", REPORTS)
def test_what_is_not_fresh_is_said(make_result: MakeResult, report: str) -> None:
    searched = REPORTS[report](_searched(make_result()))
    fresh = REPORTS[report](make_result())
    assert SAID in searched
    assert "fresh samples" not in searched
    assert "fresh samples" in fresh
    assert "of the search" not in fresh
