"""The report at the end of a session, for a terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from pytest_skillopt.report import figures, words
from pytest_skillopt.report.advice import advise, headline
from pytest_skillopt.report.files import PAGE
from pytest_skillopt.report.live import TOLD, step_line
from pytest_skillopt.report.words import clip, one_line
from pytest_skillopt.skill.document import SKILL_FILE
from pytest_skillopt.untrusted import printable, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import pytest

    from pytest_skillopt.report.advice import Advice
    from pytest_skillopt.run.result import EditRow, Rate, Result, SkillResult, TaskRow

NARROWEST = 40
"""Minimum width of wrapped text, in columns."""
_TONES = {"good": "green", "careful": "yellow", "bad": "red"}

MOST_TASKS = 12
MOST_DIFF_LINES = 80
_CHANGES = {"fixed": "green", "broken": "red", "undecided": "yellow"}
_LEGEND = "Fixed, broken: beyond chance; undecided: it may be chance."
_DIFF = {"+": "green", "-": "red", "@": "cyan"}
MOST_EDIT = 100
"""Maximum columns of an edit's text, and of its target."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line with its markup: keywords of pytest's ``TerminalWriter.line``, with spaces between.

    The text never starts a command of a CI service, and moves no cursor.
    """

    text: str = ""
    look: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", shown(self.text))

    @property
    def markup(self) -> dict[str, bool]:
        return dict.fromkeys(self.look.split(), True)


def paragraph(
    text: str, width: int, look: str = "", *, indent: str = "", hang: str = ""
) -> Iterator[Line]:
    """Wrap untrusted text into lines; ``hang`` indents those after the first further.

    Text with a node id may exceed the width: no word is broken, so that the id can be copied.
    """
    wrapped = textwrap.wrap(
        one_line(text),
        max(width, NARROWEST),
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_on_hyphens=False,
        break_long_words="::" not in text,
    )
    for line in wrapped or [""]:
        yield Line(line, look)


def print_report(config: pytest.Config, reporter: pytest.TerminalReporter, result: Result) -> None:
    """Print the report of a mode; the command that continues it is the last line of all."""
    reporter.section("skillopt")
    width = shutil.get_terminal_size().columns
    told = config.stash.get(TOLD, ())
    verbose = config.option.verbose > 0
    shown = list(lines(result, width, verbose=verbose, live=True, told=told))
    again = result.resume or headline(result).command
    last = -2 if again else len(shown)  # which other plugins would be below
    for line in shown[:last]:
        reporter.write_line(line.text, **line.markup)

    def write_last() -> None:
        for line in shown[last:]:
            reporter.write_line(line.text, **line.markup)

    config.add_cleanup(write_last)


def lines(
    result: Result,
    width: int = 80,
    *,
    verbose: bool = False,
    live: bool = False,
    told: Collection[str] = (),
) -> Iterator[Line]:
    """Write the report of a run for a terminal.

    ``width`` is in columns; ``verbose`` shows every task, every edit, and the usage by stage;
    ``live``: the run has just ended, so that it can be continued if it ended early; ``told`` are
    notes that were printed when it began.
    """
    top = headline(result)
    yield Line(f"{top.answer}.", f"bold {_TONES.get(top.tone, '')}")
    yield from paragraph(top.sentence, width)
    yield from _cautions(top.cautions, width)
    yield from _todo(top, width)
    for skill in result.skills:
        yield Line()
        yield from _skill(result, skill, top, width, verbose)
    if result.targets:
        yield from _table(*figures.targets(result), "rlrl")
        yield from _table(*figures.target_tasks(result), "l" + "r" * len(result.targets))
    yield Line()
    yield from _spent(result, verbose)
    for note in result.notes:
        if note in told:
            continue
        yield from paragraph(f"note: {note}", width, hang="  ")
    yield Line()
    yield from _next_command(result, top, width, live)


def _todo(said: Advice, width: int) -> Iterator[Line]:
    for text in said.todo:
        yield from paragraph(f"- {text}", width, hang="  ")


def _cautions(cautions: Iterable[str], width: int) -> Iterator[Line]:
    for caution in cautions:
        yield from paragraph(f"caution: {caution}", width, "yellow", hang="  ")


def _skill(
    result: Result, skill: SkillResult, top: Advice, width: int, verbose: bool
) -> Iterator[Line]:
    now = figures.version(skill.before)
    if skill.after != skill.before:
        now += f" -> {figures.version(skill.after)}"
    called = f"{skill.path} ({skill.name})" if skill.name else skill.path
    yield from paragraph(f"{called}, version {now}", width, "bold", hang="  ")
    if len(result.skills) > 1:
        said = advise(result, skill)
        yield from paragraph(said.sentence, width)
        yield from _cautions([c for c in said.cautions if c not in top.cautions], width)
        yield from _todo(said, width)
    if result.mode == "train" and skill.status == "accepted":
        written = "The file is written. This restores what was there before:"
        unwritten = "The file is NOT written; the notes below say why."
        yield from paragraph(written if skill.written else unwritten, width)
        if skill.written:
            yield Line(f"pytest-skillopt adopt {one_line(result.run)} --undo")
    for row in skill.steps if verbose else ():
        yield from paragraph(step_line(row), width, hang="  ")
    yield from _rates_lines(skill, result.mode, width)
    yield from _candidate_lines(skill, width)
    yield from _tasks_lines(
        figures.shown_rows(skill, result.mode), result.mode, width, verbose=verbose
    )
    listed = figures.uninformative_listed(skill)
    if listed and not (result.mode == "train" and skill.status != "accepted"):
        yield from paragraph(listed, width, indent="  ", hang="  ")
    yield from _edit_lines(skill.edits, width, verbose=verbose)
    yield from diff(skill.patch, verbose=verbose)
    yield from _warning_lines(skill, width)


def _spent(result: Result, verbose: bool) -> Iterator[Line]:
    """Show models, calls, tokens, cost and time; with ``verbose`` also by role and stage."""
    used = figures.total(result.usage)
    about = "about " if used.estimated else ""
    tokens = f"{about}{words.number(used.input_tokens)} in, {words.number(used.output_tokens)} out"
    rows = [
        ("calls", figures.calls(result.usage)),
        ("tokens", tokens),
        ("cost", figures.cost(result.usage)),
        ("time", f"{words.duration(result.seconds)}, {figures.rollouts(result)}"),
    ]
    if result.models:
        said = ", ".join(f"{role} {one_line(model)}" for role, model in result.models.items())
        rows.insert(0, ("models", said + (" (simulated)" if result.simulated else "")))
    for text in figures.columns(rows, "ll"):
        yield Line(text)
    if verbose and result.usage:
        head = ("role", "stage", "calls", "cached", "tokens in", "out", "cost")
        by_stage = [
            (
                row.role,
                row.stage,
                *map(words.number, (row.calls, row.cached, row.input_tokens, row.output_tokens)),
                words.money(row.cost),
            )
            for row in result.usage
        ]
        yield from _table(head, by_stage, "llrrrrr")


def _next_command(result: Result, top: Advice, width: int, live: bool) -> Iterator[Line]:
    """Name the command to run next; the last line is only that command."""
    if live and result.resume:
        yield Line("To continue where it stopped:")
        yield Line(one_line(result.resume))
        return
    if top.command:
        yield from paragraph(f"Transcripts are in {PAGE}. Next attempt:", width)
        yield Line(one_line(top.command))
        return
    where = f"Transcripts are in {PAGE}. " if result.rollouts and result.skills else ""
    yield from paragraph(f"{where}To look further:", width)
    yield Line(f"pytest-skillopt show {one_line(result.run)} --verbose")


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], align: str, colours: Sequence[str] = ()
) -> Iterator[Line]:
    """Make a table after a blank line; ``colours`` has one for each row, or is empty."""
    yield Line()
    laid = figures.columns([head, *rows], align)
    yield Line(laid[0])
    for text, colour in zip_longest(laid[1:], colours, fillvalue=""):
        yield Line(text, colour)


def _rates_lines(skill: SkillResult, mode: str, width: int) -> Iterator[Line]:
    """Show the pass rates of suite, val and test, with their precision."""
    measured = figures.comparisons(skill)
    if measured:
        compared = any(value.after is not None for value in measured.values())
        first, second = figures.sides(mode) if compared else ("", "")
        bare = ("no skill", "") if skill.none else ()
        head = ("pass rate", *bare, first, "", second, "", "points" if compared else "", "")
        rows = list(_estimate_row(skill, bare)) if skill.gain else []
        for name, value in measured.items():
            before, after = value.before, value.after
            moved = figures.points(before.rate, after.rate) if after else ""
            is_suite = value is skill.suite
            none = _rate(skill.none if is_suite else None) if skill.none else ()
            size = words.plural(before.tasks, "task")
            size += "" if compared else f", {words.plural(before.samples, 'rollout')}"
            rows.append((name, *none, *_rate(before), *_rate(after), moved, size))
        yield from _table(head, rows, "l" + "rl" * (len(head) // 2))
    if said := figures.explained(skill, mode):
        yield from paragraph(said, width, indent="  ")


def _estimate_row(skill: SkillResult, bare: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the row of the estimated rates of all tasks."""
    if gain := skill.gain:
        before, after = words.rounded(gain.before), words.rounded(gain.after)
        moved = f"{100 * gain.gain:+.0f}"
        tasks = words.plural(gain.tasks, "task")
        yield ("estimate", *("",) * len(bare), before, "", after, "", moved, tasks)


def _candidate_lines(skill: SkillResult, width: int) -> Iterator[Line]:
    """Show the lines of the new version, or of the best candidate, each with its effect."""
    rows = figures.candidate_lines(skill)
    if rows:
        yield Line()
        kept = skill.status == "accepted"
        yield Line("  What each edit brings:" if kept else "  The best candidate:")
    for row in rows:
        text = clip(one_line(row.content or row.target), MOST_EDIT)
        yield from paragraph(f"{text} ({row.figures})", width, indent="  ", hang="  ")


def _rate(rate: Rate | None) -> tuple[str, str]:
    return (words.percent(rate.rate), f"({figures.interval(rate)})") if rate else ("", "")


def _tasks_lines(
    rows: Sequence[TaskRow], mode: str, width: int, *, verbose: bool
) -> Iterator[Line]:
    """Make a row for each task, the node id last so that it can be copied whole.

    Without ``verbose`` only the tasks that changed or, without a comparison, that did not always
    pass.
    """
    if not rows:
        return
    compared = any(row.after is not None for row in rows)
    test = [row for row in rows if row.split == "test"] if compared and not verbose else []
    rows = sorted((row for row in rows if not test or row.split != "test"), key=_rank)
    telling = [row for row in rows if _telling(row, compared)]
    shown = rows if verbose else telling[:MOST_TASKS]
    if shown:
        head = (*figures.sides(mode), "change") if compared else ("rate", "passed", "")
        body = [(*_figures(row, compared), one_line(row.id)) for row in shown]
        colours = [_CHANGES.get(row.change, "") for row in shown]
        yield from _table((*head, "task"), body, "rrll", colours)
    else:
        yield Line()
    said = [*_hidden(rows, telling, len(shown), compared=compared)]
    if compared and shown:
        said.append(_LEGEND)
    said += [f"In the test split {figures.counted(test)}."] if test else []
    if said:
        yield from paragraph(" ".join(said), width, indent="  ")


def _hidden(
    rows: Sequence[TaskRow], telling: Sequence[TaskRow], shown: int, *, compared: bool
) -> Iterator[str]:
    """Count the tasks that are not shown."""
    rest = []
    if len(telling) > shown:
        what = "changed" if compared else "below 100 %"
        rest.append(f"{words.number(len(telling) - shown)} more {what}")
    if quiet := [row for row in rows if row not in telling]:
        tasks = words.plural(len(quiet), "task")
        taken = sorted({row.before.n for row in quiet})
        most = words.plural(taken[-1], "rollout")
        often = f"{taken[0]} to {most}" if len(taken) > 1 else most
        alike = figures.CHANGES["same"]
        rest.append(f"{tasks} {alike}" if compared else f"{tasks} passed every time ({often})")
    if rest:
        yield ", ".join(rest) + "."


def _figures(row: TaskRow, compared: bool) -> tuple[str, str, str]:
    """Return two figures and the marks of a task."""
    marks = figures.marks(row)
    before = f"{row.before.passed} of {row.before.n}"
    if not compared:
        return words.percent(figures.pass_rate(row.before)), before, ", ".join(marks)
    marks = [mark for mark in marks if mark != "flaky"]
    after = f"{row.after.passed} of {row.after.n}" if row.after else words.UNKNOWN
    return before, after, ", ".join(([] if row.change == "same" else [row.change]) + marks)


def _rank(row: TaskRow) -> tuple[int, float, list[tuple[int, str]]]:
    rate = figures.pass_rate(row.before)
    return (
        list(figures.CHANGES).index(row.change),
        -1.0 if rate is None else rate,
        figures.in_order(row.id),
    )


def _telling(row: TaskRow, compared: bool) -> bool:
    if compared:
        return row.change != "same"
    return row.skipped or row.before.errors > 0 or not 0 < row.before.n == row.before.passed


def diff(patch: str, *, verbose: bool) -> Iterator[Line]:
    """Colour a unified diff without wrapping it."""
    if not patch:
        return
    rows = patch.removesuffix("\n").split("\n")
    shown = rows if verbose else rows[:MOST_DIFF_LINES]
    yield Line()
    for row in shown:
        text = printable(row).replace("\n", " ")
        header = row.startswith(("---", "+++"))
        yield Line(text, "bold" if header else _DIFF.get(row[:1], ""))
    if len(rows) > len(shown):
        yield Line(f"... {words.plural(len(rows) - len(shown), 'more line')} of the diff")


def _warning_lines(skill: SkillResult, width: int) -> Iterator[Line]:
    """Show the lint's warnings about the diff."""
    if skill.warnings:
        yield Line()
    for warning in skill.warnings:
        said = f"look at ({warning.rule}): {one_line(warning.excerpt or warning.message)}"
        yield from paragraph(said, width, "yellow", indent="  ", hang="  ")


def _edit_lines(rows: Sequence[EditRow], width: int, *, verbose: bool) -> Iterator[Line]:
    """Count the edits by outcome; with ``verbose`` show each with its reason."""
    if not rows:
        return
    counts: Counter[str] = Counter(row.status for row in rows)
    order = ("accepted", "rejected", "given up", "open", "dropped", "refused")
    said = ", ".join(f"{counts[status]} {status}" for status in order if counts[status])
    yield Line()
    yield Line(f"  edits: {said}")
    for row in rows if verbose else ():
        look = "green" if row.status == "accepted" else ""
        yield from paragraph(_edit(row), width, look, indent="    ", hang="  ")


def _edit(row: EditRow) -> str:
    """Describe an edit and its outcome: ``step 2, dropped: append "...": why``."""
    what = f' "{clip(one_line(row.content), MOST_EDIT)}"' if row.content else ""
    where = f' at "{clip(one_line(row.target), MOST_EDIT)}"' if row.target else ""
    where = f" in {one_line(row.file)}{where}" if row.file != SKILL_FILE else where
    why = "; ".join(filter(None, (row.figures, row.why or row.reason)))
    if row.again:
        why += f"; proposed {row.again} times more" if row.again > 1 else "; proposed once more"
    return f"step {row.step}, {row.status}: {row.op}{what}{where}" + (f": {why}" if why else "")
