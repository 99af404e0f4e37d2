"""Command ``pytest-skillopt runs``: list the runs, the latest last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.addons import figures
from pytest_skillopt.addons.figures import columns
from pytest_skillopt.cli import fail, home_of
from pytest_skillopt.report import words
from pytest_skillopt.report.runs import ELSEWHERE, load_runs
from pytest_skillopt.report.words import one_line
from pytest_skillopt.untrusted import shown

if TYPE_CHECKING:
    import argparse

    from pytest_skillopt import Result
    from pytest_skillopt.run.result import SkillResult


def runs(args: argparse.Namespace) -> int:
    """Print the table, and why a run is not in it."""
    home = home_of(args)
    found = load_runs(home)
    if not found:
        return fail(f"no run in {home.runs} ({ELSEWHERE})")
    read = [run.result for run in found if run.result is not None]
    rows = [_row(result, skill) for result in read for skill in result.skills or (None,)]
    head = ("run", "date", "mode", "status", "skill", "before", "after", "calls", "tokens", "cost")
    for line in columns([head, *rows], "lllllrrrrr", indent="") if rows else ():
        print(shown(line))
    for run in found:
        if run.result is None:
            print(shown(f"skipped {one_line(run.id)}: {run.problem}"))
    return 0


def _row(result: Result, skill: SkillResult | None) -> tuple[str, ...]:
    """Return the cells of a skill of a run."""
    used, missing = figures.total(result.usage), figures.unpriced(result.usage)
    measured = (skill.suite or skill.val) if skill else None
    after = measured.after if measured else None
    left_out = f" without {', '.join(missing)}" if missing and used.cost is not None else ""
    return (
        one_line(result.run),
        one_line(result.started)[:10],
        result.mode,
        skill.status if skill else result.status,
        one_line(skill.name or skill.path) if skill else "",
        words.percent(measured.before.rate if measured else None),
        words.percent(after.rate if after else None),
        words.number(used.calls),
        words.number(used.input_tokens + used.output_tokens),
        words.money(used.cost) + left_out,
    )
