"""Table of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.report import words
from pytest_skillopt.report.words import columns, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_skillopt import Result
    from pytest_skillopt.report.runs import StoredRun
    from pytest_skillopt.run.result import SkillResult


def list_runs(runs: Sequence[StoredRun]) -> Iterator[str]:
    """Yield a table with a row for each skill of each run, the latest last."""
    read = [run.result for run in runs if run.result is not None]
    rows = [_row(result, skill) for result in read for skill in result.skills or (None,)]
    if rows:
        head = ("run", "date", "mode", "status", "skill", "before", "after")
        spent = ("calls", "tokens", "cost")
        yield from columns([(*head, *spent), *rows], "lllllrrrrr", indent="")
    for run in runs:
        if run.result is None:
            yield f"skipped {one_line(run.id)}: {run.problem}"


def _row(result: Result, skill: SkillResult | None) -> tuple[str, ...]:
    used, missing = words.total(result.usage), words.unpriced(result.usage)
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
