"""Reports as files, properties in that of ``--junitxml``, a link in the page of pytest-html."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_skillopt import Result
    from pytest_skillopt.run.result import TaskRow

PAGE = "report.html"


def _page(result: Result) -> str:
    from pytest_skillopt.addons.reports.page import render_html

    return render_html(result)


def _summary(result: Result, *limit: int) -> str:
    from pytest_skillopt.addons.reports.summary import render_summary

    return render_summary(result, *limit)


def properties(row: TaskRow) -> list[tuple[str, str]]:
    """List the properties of a task's test case."""
    from pytest_skillopt.addons.reports.junit import task_properties

    return task_properties(row)


REPORTS = {PAGE: _page, "summary.md": _summary}


def pytest_skillopt_finished(config: pytest.Config, result: Result, folder: Path) -> None:
    """Have the page of pytest-html link to the report, if that plugin writes one."""
    if config.getoption("htmlpath", None):
        config.pluginmanager.register(_Link(config, result, folder / PAGE))


class _Link:
    """pytest plugin that adds the link."""

    def __init__(self, config: pytest.Config, result: Result, report: Path) -> None:
        self._page = config.invocation_params.dir / config.getoption("htmlpath")
        self._result = result
        self._report = report

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_summary(self, prefix: list[str]) -> None:
        from pytest_skillopt.addons.reports.page import summary_link

        prefix.append(summary_link(self._result, self._report, self._page))
