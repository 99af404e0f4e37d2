"""Reports: at the end of a session, in files, in those of ``--junitxml`` and pytest-html, later."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.addon import AddOn
from pytest_skillopt.addons.later import Later

if TYPE_CHECKING:
    import argparse

    from pytest_skillopt import Result
    from pytest_skillopt.addons import figures
    from pytest_skillopt.addons.reports import commands, hunks, openings, page, summary
    from pytest_skillopt.run.result import Arm, TaskRow
else:
    commands, hunks = Later("reports.commands"), Later("reports.hunks")
    openings, page, summary = (Later(f"reports.{n}") for n in ("openings", "page", "summary"))
    figures = Later("figures")

PAGE = "report.html"


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the report of a mode; the command that continues it is the last line of all."""
    controller: Any = config.pluginmanager.get_plugin("skillopt-controller")
    result: Result | None = controller.result if controller else None
    if result is None:
        return
    from pytest_skillopt.addons.advice import headline
    from pytest_skillopt.addons.reports.terminal import lines
    from pytest_skillopt.report.live import TOLD

    terminalreporter.section("skillopt")
    width = shutil.get_terminal_size().columns
    verbose = config.option.verbose > 0
    told = config.stash.get(TOLD, ())
    shown = list(lines(result, width, verbose=verbose, live=True, told=told))
    again = result.resume or headline(result).command
    last = -2 if again else len(shown)  # which other plugins would be below
    for line in shown[:last]:
        terminalreporter.write_line(line.text, **line.markup)

    def write_last() -> None:
        for line in shown[last:]:
            terminalreporter.write_line(line.text, **line.markup)

    config.add_cleanup(write_last)


def _properties(row: TaskRow) -> list[tuple[str, str]]:
    """List the properties of a task's JUnit test case; their names begin with ``skillopt_``.

    Rates are in [0, 1] with four decimals, costs in US dollars with six; a missing measurement has
    no property. With two versions, ``_after`` marks the figures of the second.
    """
    said = {"split": row.split, **_arm_properties(row.before, "")}
    if row.after is not None:
        said |= {**_arm_properties(row.after, "_after"), "change": row.change}
    said |= {
        "marks": ", ".join(figures.marks(row)),
        "calls": str(row.calls),
        "tokens": str(row.tokens),
        "cost": _decimal(row.cost, 6),
    }
    return [(f"skillopt_{name}", value) for name, value in said.items() if value]


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


def _add_reading_commands(parsers: argparse._SubParsersAction[Any]) -> None:
    from pytest_skillopt.addons.runs import add_run_arguments

    show = parsers.add_parser("show", help="print the report of a run")
    text = "show every task, every edit and the usage by stage"
    show.add_argument("-v", "--verbose", action="store_true", help=text)
    text = "print the changes of a run as a patch for `git apply`"
    diff = parsers.add_parser("diff", help=text)
    diff.add_argument("--output", type=Path, metavar="FILE", help="write the patch to a file")
    for parser, handle in ((show, commands.show), (diff, commands.show_diff)):
        add_run_arguments(parser)
        parser.set_defaults(handle=handle)
    runs = parsers.add_parser("runs", help="list the runs, the latest last")
    add_run_arguments(runs, run=False)
    runs.set_defaults(handle=commands.runs)


ADDON = AddOn(
    add_reading_commands=_add_reading_commands,
    trained=openings.counted,
    accepted=hunks.attributed,
    reports={PAGE: page.render_html, "summary.md": summary.render_summary},
    properties=_properties,
)


_LINK = pytest.StashKey[str]()
"""Link for the page of pytest-html, if that plugin writes one."""


def pytest_skillopt_finished(config: pytest.Config, result: Result, folder: Path) -> None:
    """Make the link from that page to the report."""
    if name := config.getoption("htmlpath", None):
        its_page = config.invocation_params.dir / name
        config.stash[_LINK] = page.summary_link(result, folder / PAGE, its_page)


@pytest.hookimpl(optionalhook=True)
def pytest_html_results_summary(prefix: list[str], session: pytest.Session) -> None:
    if link := session.config.stash.get(_LINK, None):
        prefix.append(link)
