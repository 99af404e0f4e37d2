"""Reports as files, in that of ``--junitxml`` and pytest-html; ``pytest-skillopt runs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.addons.later import later

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_skillopt import Result
    from pytest_skillopt.run.result import Arm, TaskRow

PAGE = "report.html"


REPORTS = {
    PAGE: later("reports.page:render_html"),
    "summary.md": later("reports.summary:render_summary"),
}
trained = later("reports.openings:counted")
vetted = later("reports.hunks:attributed")


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    from pytest_skillopt.cli import add_run_arguments

    parser = commands.add_parser("runs", help="list the runs, the latest last")
    add_run_arguments(parser, run=False)
    parser.set_defaults(handle=later("reports.listing:runs"))


def properties(row: TaskRow) -> list[tuple[str, str]]:
    """List the properties of a task's JUnit test case; their names begin with ``skillopt_``.

    Rates are in [0, 1] with four decimals, costs in US dollars with six; a missing measurement has
    no property. With two versions, ``_after`` marks the figures of the second.
    """
    from pytest_skillopt.report.words import marks

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
    from pytest_skillopt.report.words import pass_rate

    rate = pass_rate(arm)
    if rate is not None:
        yield f"pass_rate{suffix}", f"{rate:.4f}"
    yield f"passed{suffix}", str(arm.passed)
    yield f"samples{suffix}", str(arm.n)
    if arm.score is not None:
        yield f"score{suffix}", f"{arm.score:.4f}"
    if arm.errors:
        yield f"errors{suffix}", str(arm.errors)


def pytest_skillopt_finished(config: pytest.Config, result: Result, folder: Path) -> None:
    """Have the page of pytest-html link to the report, if that plugin writes one."""
    if name := config.getoption("htmlpath", None):
        from pytest_skillopt.addons.reports.page import summary_link

        page = config.invocation_params.dir / name
        config.pluginmanager.register(_Link(summary_link(result, folder / PAGE, page)))


class _Link:
    """pytest plugin that adds the link."""

    def __init__(self, html: str) -> None:
        self._html = html

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_summary(self, prefix: list[str]) -> None:
        prefix.append(self._html)
