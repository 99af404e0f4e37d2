"""``summary.md``: the report of a job."""

from __future__ import annotations

import shlex
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from pytest_skillopt.report import figures, words
from pytest_skillopt.report.advice import advise
from pytest_skillopt.report.files import PAGE
from pytest_skillopt.report.markup import code, fenced, prose
from pytest_skillopt.report.rendering import changed_settings, common, environment
from pytest_skillopt.report.words import one_line
from pytest_skillopt.skill.document import SKILL_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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


def render_summary(result: Result, limit: int = SUMMARY_LIMIT) -> str:
    """Write the report in at most ``limit`` bytes of UTF-8, at least 2,000.

    Blocks that do not fit are left out.
    """
    where = code(f"{PAGE} of run {result.run}", 200)
    pointer = f"Transcripts and all figures: {where}; of a CI job, in its artifact.\n"
    cut = f"_Shortened to fit._ {pointer}"
    room = limit - len(cut.encode())
    kept, blocks = [], _blocks(result)
    for block in blocks:
        size = len(block.encode()) + 2
        if size <= room:
            kept.append(block)
            room -= size
    return "\n\n".join([*kept, pointer if len(kept) == len(blocks) else cut])


def _blocks(result: Result) -> list[str]:
    """List in order the blocks that are kept or left out as a whole."""
    template = _environment().get_template("summary.md.j2")
    whole = template.render(
        common(result),
        rollouts=figures.rollouts(result),
        command=one_line(shlex.join(result.command))[:4000],
        settings=changed_settings(result),
    )
    return [block.strip("\n ") for block in whole.split(_CUT) if block.strip()]


@cache
def _environment() -> jinja2.Environment:
    made = environment(lambda said: Markup(prose(said)) if type(said) is str else said)
    made.filters |= {
        "prose": lambda text, most: Markup(prose(text, most)),
        "code": lambda text, most=300: Markup(code(text, most)),
        "fenced": lambda text, language="": Markup(fenced(text, language)),
        "diff": _diff,
        "tasks": _tasks,
        "rounded": words.rounded,
        "gained": figures.gained,
        "rates": _rates,
        "ours": Markup,
    }
    made.globals |= {
        "cut": Markup(_CUT),
        "listed": _listed,
        "folded": _folded,
        "why": _why,
        "advise": advise,
    }
    return made


def _diff(rows: Iterable[tuple[str, str]]) -> Markup:
    """Make a block of the lines of a diff; each keeps its sign, so that GitLab runs none."""
    lines = [text[:MOST_DIFF_LINE] for _, text in rows]
    return Markup(fenced("\n".join(lines), "diff"))


def _rates(value: Comparison, none: Rate | None = None) -> Markup:
    """Make the cells of a table: no skill (if it is known), before, after, points."""
    if none is not None:
        return Markup(f"{words.percent(none.rate)} ({figures.interval(none)}) | ") + _rates(value)
    before, after = value.before, value.after
    now = f"{words.percent(before.rate)} ({figures.interval(before)})"
    if after is None:
        return Markup(f"{now} |  | ")
    then = f"**{words.percent(after.rate)}** ({figures.interval(after)})"
    return Markup(f"{now} | {then} | {figures.points(before.rate, after.rate)}")


def _why(edit: EditRow) -> Markup:
    """Describe an edit: its text, its reason, and the tasks that asked for it."""
    where = f"in {code(edit.file)}, " if edit.file != SKILL_FILE else ""
    said = [where + code(edit.content or edit.target, 200), prose(edit.reason)]
    named = [code(task) for task in figures.ordered(edit.tasks)[:MOST_CALLING]]
    if more := len(edit.tasks) - len(named):
        named[-1] += f" and {more} more"
    calling = f" (called for by {', '.join(named)})" if named else ""
    return Markup(": ".join(filter(None, said)) + calling)


def _tasks(rows: Sequence[TaskRow]) -> Iterator[tuple[str, list[Markup]]]:
    """Yield lists of tasks that a reader may want to check, each with its title."""
    rows = sorted(rows, key=lambda row: figures.in_order(row.id))
    lists: dict[str, list[TaskRow]] = {}
    if any(row.after is not None for row in rows):
        for change in ("broken", "undecided", "fixed"):
            moved = [row for row in rows if row.change == change and row.split != "test"]
            lists[f"{change}: {figures.CHANGES[change]}"] = moved
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
    marks = figures.marks(row)
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
