"""The report as Markdown: the text of a pull request, a job summary, ``summary.md``."""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from pytest_skillopt.report import words
from pytest_skillopt.report.advice import advise, headline
from pytest_skillopt.report.pages import environment
from pytest_skillopt.report.words import one_line, short
from pytest_skillopt.skill.document import SKILL_FILE
from pytest_skillopt.untrusted import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import jinja2

    from pytest_skillopt.run.result import Comparison, EditRow, Rate, Result, TaskRow

SUMMARY_LIMIT = 900_000
"""Bytes; GitHub refuses a job summary above 1 MiB."""

MOST_DIFF_LINE = 2_000
MOST_CALLING = 6
"""Tasks named with an edit."""
MOST_ITEMS = 12_000
"""Maximum bytes of one list, so that it leaves room for the blocks after it."""
_CUT = "\f"
"""Separator of blocks; untrusted text never holds it, since it is not printable."""

_GAP = "\u200b"
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MARKS = re.compile(r"([\\`*_\[\]|~$])")
_REFERENCES = re.compile(
    r"([@#!%~$&^*])(?=[\w\"])"  # people, issues, requests, milestones, labels, snippets, epics
    r"|(?<=\bGH)(-)(?=\d)"
    r"|(:)(?=//|[\w+-]+:)"  # addresses, emoji by name
    r"|(?<=\bwww)(\.)"
    r"|(\[)(?=[a-z_]+:\d)"
    r"|([0-9a-f]{6})(?=[0-9a-f])",  # commits
    re.IGNORECASE,
)
_START = re.compile(r"^(?:([-+=/#])|(\d{1,9})([.)]))")


def pull_request_body(result: Result, limit: int = 60_000) -> str:
    """Write the text of a pull request in at most ``limit`` bytes of UTF-8, at least 2,000.

    Blocks that do not fit are left out.
    """
    where = code(f"{words.whole_report()} of run {result.run}", 200)
    pointer = f"Transcripts and all figures: {where}, in the artifact of the job.\n"
    cut = f"_Shortened to fit._ {pointer}"
    room = limit - len(cut.encode())
    kept, shortened = [], False
    for block in _blocks(result):
        size = len(block.encode()) + 2
        if size <= room:
            kept.append(block)
            room -= size
        else:
            shortened = True
    return "\n\n".join([*kept, cut if shortened else pointer])


def step_summary(result: Result) -> str:
    """Write the text of ``$GITHUB_STEP_SUMMARY`` and ``summary.md``."""
    return pull_request_body(result, SUMMARY_LIMIT)


def _blocks(result: Result) -> Iterator[str]:
    """Yield in order the blocks that are kept or left out as a whole."""
    template = _environment().get_template("summary.md.j2")
    whole = template.render(
        result=result,
        advice=headline(result),
        sides=words.sides(result.mode),
        used=words.total(result.usage),
        calls=words.calls(result.usage),
        cost=words.cost(result.usage),
        rollouts=words.rollouts(result),
        command=one_line(shlex.join(result.command))[:4000],
        settings=words.changed_settings(result),
    )
    return (block.strip("\n ") for block in whole.split(_CUT) if block.strip())


@cache
def _environment() -> jinja2.Environment:
    made = environment(lambda said: Markup(prose(said)) if type(said) is str else said)
    made.filters |= {
        "prose": lambda text, most: Markup(prose(text, most)),
        "code": lambda text, most=300: Markup(code(text, most)),
        "fenced": lambda text, language="": Markup(fenced(text, language)),
        # Each line keeps its sign, so that GitLab takes none for a command.
        "diff": lambda rows: Markup(
            fenced("\n".join(text[:MOST_DIFF_LINE] for _, text in rows), "diff")
        ),
        "tasks": _tasks,
        "rates": _rates,
        "ours": Markup,
        "join_cells": lambda cells: Markup(" | ".join(prose(cell, 120) for cell in cells)),
    }
    made.globals |= {
        "cut": Markup(_CUT),
        "listed": _listed,
        "folded": _folded,
        "why": _why,
        "advise": advise,
    }
    return made


def _rates(value: Comparison, none: Rate | None = None) -> Markup:
    """Make the cells of a table: no skill (if it is known), before, after, points."""
    if none is not None:
        return Markup(f"{words.percent(none.rate)} ({words.interval(none)}) | ") + _rates(value)
    before, after = value.before, value.after
    now = f"{words.percent(before.rate)} ({words.interval(before)})"
    if after is None:
        return Markup(f"{now} |  | ")
    then = f"**{words.percent(after.rate)}** ({words.interval(after)})"
    return Markup(f"{now} | {then} | {words.points(before.rate, after.rate)}")


def _why(edit: EditRow) -> Markup:
    """Describe an edit: its text, its reason, and the tasks that asked for it."""
    where = f"in {code(edit.file)}, " if edit.file != SKILL_FILE else ""
    said = [where + code(edit.content or edit.target, 200), prose(edit.reason)]
    named = [code(task) for task in words.ordered(edit.tasks)[:MOST_CALLING]]
    if more := len(edit.tasks) - len(named):
        named[-1] += f" and {more} more"
    calling = f" (called for by {', '.join(named)})" if named else ""
    return Markup(": ".join(filter(None, said)) + calling)


def _tasks(rows: Sequence[TaskRow]) -> Iterator[tuple[str, list[Markup]]]:
    """Yield lists of tasks that a reader may want to check, each with its title."""
    rows = sorted(rows, key=lambda row: words.in_order(row.id))
    lists: dict[str, list[TaskRow]] = {}
    if any(row.after is not None for row in rows):
        for change in ("broken", "undecided", "fixed"):
            moved = [row for row in rows if row.change == change and row.split != "test"]
            lists[f"{change}: {words.CHANGES[change]}"] = moved
        test = [row for row in rows if row.split == "test"]
        lists["of the test split, which no edit has seen"] = test
    else:
        missed = [row for row in rows if row.before.passed < row.before.n or not row.before.n]
        lists["did not always pass"] = missed
    for said, chosen in lists.items():
        shown = [Markup(f"{code(row.id)}: {_counts(row)}") for row in chosen]
        yield f"{words.plural(len(chosen), 'task')} {said}", shown


def _counts(row: TaskRow) -> str:
    said = f"{row.before.passed} of {row.before.n}"
    if row.after is not None:
        change = f", {row.change}" if row.split == "test" else ""
        return f"{said} to {row.after.passed} of {row.after.n}{change}"
    marks = words.marks(row)
    return f"{said} ({', '.join(marks)})" if marks else said


def _folded(title: str, caller: Callable[[], str]) -> Markup:
    """Make a folded list; the title must be trusted, the items are inert."""
    items = _listed(caller)
    inside = f"<details><summary>{title}</summary>\n\n{items}\n\n</details>"
    return Markup(inside if items else "")


def _listed(caller: Callable[[], str]) -> Markup:
    """Make a list of at most ``MOST_ITEMS`` bytes, with the number of further items."""
    lines, room, rest = [], MOST_ITEMS, 0
    for item in filter(None, caller().split("\n")):
        room -= len(item.encode()) + 3
        if room >= 0:
            lines.append(f"- {item}")
        else:
            rest += 1
    return Markup("\n".join([*lines, f"- and {words.number(rest)} more"] if rest else lines))


def prose(text: str, most: int = 600) -> str:
    """Make one line of text without markup and without references to people or issues."""
    line = one_line(short(text, most))
    line = _REFERENCES.sub(lambda match: match[0] + _GAP, line)
    line = _MARKS.sub(r"\\\1", line)
    line = re.sub(r"[&<>]", lambda match: _ENTITIES[match[0]], line)
    return _START.sub(_escape_start, line)


def code(text: str, most: int = 300) -> str:
    """Make one line a code span."""
    line = one_line(short(text, most))
    if not line:
        return ""
    ticks = "`" * (_longest_run(line) + 1)
    # A span strips one space on either side; a backtick at its begin or end needs that space.
    return f"{ticks} {line} {ticks}" if "`" in (line[0], line[-1]) else f"{ticks}{line}{ticks}"


def fenced(text: str, language: str = "") -> str:
    """Make a code block whose fence is longer than any in the text."""
    block = printable(text).strip("\n")
    fence = "`" * max(_longest_run(block) + 1, 3)
    return f"{fence}{language}\n{block}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _escape_start(match: re.Match[str]) -> str:
    """Escape the start of a line that would begin a list, a heading or a command."""
    return f"\\{match[1]}" if match[1] else f"{match[2]}\\{match[3]}"
