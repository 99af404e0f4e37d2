"""Reports: at the end of a session, in files, in those of ``--junitxml`` and pytest-html, later."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.addons.later import later

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_skillopt import Result
    from pytest_skillopt.addons.reports.terminal import Line
    from pytest_skillopt.run.result import Arm, TaskRow

PAGE = "report.html"


REPORTS = {
    PAGE: later("reports.page:render_html"),
    "summary.md": later("reports.summary:render_summary"),
}
trained = later("reports.openings:counted")
vetted = later("reports.hunks:attributed")


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the report of a mode; the command that continues it is the last line of all."""
    controller: Any = config.pluginmanager.get_plugin("skillopt-controller")
    result: Result | None = controller.result if controller else None
    if result is None:
        return
    from pytest_skillopt.addons.reports.terminal import lines

    terminalreporter.section("skillopt")
    width = shutil.get_terminal_size().columns
    verbose = config.option.verbose > 0
    shown = list(lines(result, width, verbose=verbose, live=True))
    last = -2 if result.resume else len(shown)  # which other plugins would be below
    config.pluginmanager.register(_Last(terminalreporter, shown[last:]))
    for line in shown[:last]:
        terminalreporter.write_line(line.text, **line.markup)


class _Last:
    """pytest plugin that prints lines below those of all others."""

    def __init__(self, terminal: pytest.TerminalReporter, lines: Sequence[Line]) -> None:
        self._terminal, self._lines = terminal, lines

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        for line in self._lines:
            self._terminal.write_line(line.text, **line.markup)


def properties(row: TaskRow) -> list[tuple[str, str]]:
    """List the properties of a task's JUnit test case; their names begin with ``skillopt_``.

    Rates are in [0, 1] with four decimals, costs in US dollars with six; a missing measurement has
    no property. With two versions, ``_after`` marks the figures of the second.
    """
    from pytest_skillopt.addons.figures import marks

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
    from pytest_skillopt.addons.figures import pass_rate

    rate = pass_rate(arm)
    if rate is not None:
        yield f"pass_rate{suffix}", f"{rate:.4f}"
    yield f"passed{suffix}", str(arm.passed)
    yield f"samples{suffix}", str(arm.n)
    if arm.score is not None:
        yield f"score{suffix}", f"{arm.score:.4f}"
    if arm.errors:
        yield f"errors{suffix}", str(arm.errors)


def add_reading_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the commands."""
    from pytest_skillopt.cli import add_run_arguments

    show = commands.add_parser("show", help="print the report of a run")
    text = "show every task, every edit and the usage by stage"
    show.add_argument("-v", "--verbose", action="store_true", help=text)
    text = "show the measurements that the project has kept over time instead"
    show.add_argument("--history", action="store_true", help=text)
    text = "print the changes of a run as a patch for `git apply`"
    diff = commands.add_parser("diff", help=text)
    diff.add_argument("--output", type=Path, metavar="FILE", help="write the patch to a file")
    for parser, handle in ((show, "show"), (diff, "show_diff")):
        add_run_arguments(parser)
        parser.set_defaults(handle=later(f"reports.commands:{handle}"))
    runs = commands.add_parser("runs", help="list the runs, the latest last")
    add_run_arguments(runs, run=False)
    runs.set_defaults(handle=later("reports.commands:runs"))


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
