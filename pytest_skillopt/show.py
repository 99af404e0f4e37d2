"""Command ``pytest-skillopt show``: print what runs have stored."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from pytest_skillopt.cli import fail, tell
from pytest_skillopt.report import figures
from pytest_skillopt.report.terminal import Layout, columns, lines
from pytest_skillopt.run.directory import PATCH
from pytest_skillopt.run.past import ELSEWHERE, home_of, load_runs, pick_run
from pytest_skillopt.run.project import change_of_run
from pytest_skillopt.skill.diff import patch_of
from pytest_skillopt.untrusted import is_ci, no_command, shown
from pytest_skillopt.words import money, number, one_line, percent

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from pytest_skillopt import Result
    from pytest_skillopt.report.terminal import Line
    from pytest_skillopt.run.result import SkillResult

_ANSI = {"bold": 1, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


def show(args: argparse.Namespace) -> int:
    """Print the report of a run, its patch, or the table of all runs."""
    if args.list:
        return _show_list(args)
    if args.patch:
        return _show_patch(args)
    _, result = pick_run(home_of(args), args.run)
    _print(lines(result, shutil.get_terminal_size().columns, verbose=args.verbose))
    return 0


def _show_patch(args: argparse.Namespace) -> int:
    """Print the changes between the versions that a run has stored."""
    home = home_of(args)
    run, result = pick_run(home, args.run)
    patch = ""
    for skill in result.skills:
        if skill.before != skill.after:
            before, after = change_of_run(home, run.id, skill)
            root = home.path.resolve().parent
            patch += patch_of(before, after, skill.path, root)
    if not patch:
        print(shown(f"run {run.id} changed nothing: {result.reason}"), file=sys.stderr)
    elif sys.stdout.isatty():
        _print(Layout(0, verbose=True).diff(patch))
    elif is_ci() and no_command(patch) != patch:
        place = home.runs / run.id / PATCH
        return fail(f"this CI would execute a line of the patch: it is {place}")
    else:
        # Unchanged bytes, so that it applies: line ends and control characters are part of it.
        sys.stdout.buffer.write(patch.encode("utf-8", "surrogateescape"))
    return 0


def _show_list(args: argparse.Namespace) -> int:
    """Print the table, and why a run is not in it."""
    if args.run:
        return fail(f"--list lists all runs: leave {args.run} out, or --list")
    home = home_of(args)
    found = load_runs(home)
    if not found:
        return fail(f"no run in {home.runs} ({ELSEWHERE})")
    read = [run.result for run in found if run.result is not None]
    rows = [_row(result, skill) for result in read for skill in result.skills or (None,)]
    head = ("run", "date", "mode", "status", "skill", "before", "after", "calls", "tokens", "cost")
    for line in columns([head, *rows], "lllllrrrrr", indent="") if rows else ():
        tell(line)
    for run in found:
        if run.result is None:
            tell(f"skipped {one_line(run.id)}: {run.problem}")
    return 0


def _row(result: Result, skill: SkillResult | None) -> tuple[str, ...]:
    """Return the cells of a skill of a run."""
    used = figures.total(result.usage)
    missing = figures.unpriced(result.usage)
    measured = (skill.suite or skill.val) if skill else None
    after = measured.after if measured else None
    left_out = f" without {', '.join(missing)}" if missing and used.cost is not None else ""
    status = skill.status if skill else result.status
    name = one_line(skill.name or skill.path) if skill else ""
    before = measured.before.rate if measured else None
    reached = after.rate if after else None
    if skill and skill.gain:  # as the first sentence of its report
        before = skill.gain.before
        reached = skill.gain.after
    return (
        one_line(result.run),
        one_line(result.started)[:10],
        result.mode,
        status,
        name,
        percent(before),
        percent(reached),
        number(used.calls),
        number(used.input_tokens + used.output_tokens),
        money(used.cost) + left_out,
    )


def _print(report: Iterable[Line]) -> None:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in report:
        codes = [str(_ANSI[name]) for name, on in line.markup.items() if on] if coloured else []
        text = line.text
        if codes:
            text = f"\x1b[{';'.join(codes)}m{text}\x1b[0m"
        print(text)
