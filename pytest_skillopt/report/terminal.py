"""The report at the end of a session, for a terminal."""

from __future__ import annotations

import shutil
import textwrap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_skillopt import words
from pytest_skillopt.report import blocks
from pytest_skillopt.report.blocks import Code, cell
from pytest_skillopt.report.live import TOLD
from pytest_skillopt.report.view import advice_blocks, view
from pytest_skillopt.run.directory import PAGE
from pytest_skillopt.run.past import HOME
from pytest_skillopt.untrusted import shown
from pytest_skillopt.words import clip, one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pytest

    from pytest_skillopt.report.blocks import Block, Cell, Inline, Section, Table
    from pytest_skillopt.run.result import Result

NARROWEST = 40
"""Minimum width of wrapped text, in columns."""
MOST_ROWS = 12
MOST_DIFF_LINES = 80
MOST_CODE = 200
"""Most characters of a piece of code in a text."""
_TERMS = {"unchanged": ", under a higher cap", "unmeasured": ", if no test has changed"}
"""How a run can be continued, by its status."""
_LOOKS = {"good": "green", "careful": "yellow", "bad": "red", "neutral": "", "hint": ""}
_DIFF = {"+": "green", "-": "red", "@": "cyan"}


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
        names = (_LOOKS.get(look, look) for look in self.look.split())
        return dict.fromkeys(filter(None, names), True)


def paragraph(
    text: str, width: int, look: str = "", *, indent: str = "", hang: str = ""
) -> Iterator[Line]:
    """Wrap untrusted text into lines; ``hang`` indents those after the first further.

    Text with a node id or a path may exceed the width: no word of it is broken, so that these can
    be copied.
    """
    has_path = "/" in text and max(map(len, text.split())) <= MOST_CODE
    wrapped = textwrap.wrap(
        one_line(text),
        max(width, NARROWEST),
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_on_hyphens=False,
        break_long_words="::" not in text and not has_path,
    )
    for line in wrapped or [""]:
        yield Line(line, look)


def print_report(config: pytest.Config, reporter: pytest.TerminalReporter, result: Result) -> None:
    """Print the report of a mode; the command that continues it is the last line of all."""
    reporter.section("skillopt")
    width = shutil.get_terminal_size().columns
    told = config.stash.get(TOLD, ())
    verbose = config.option.verbose > 0
    *report, label, command = lines(result, width, verbose=verbose, live=True, told=told)
    for line in report:
        reporter.write_line(line.text, **line.markup)

    def end() -> None:
        reporter.write_line(label.text, **label.markup)
        reporter.write_line(command.text, **command.markup)

    # Other plugins write below what is written now.
    config.add_cleanup(end)


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
    report = view(result)
    lay = Layout(width, verbose=verbose)
    yield Line(f"{report.advice.answer}.", f"bold {report.advice.tone}")
    for block in advice_blocks(report.advice):
        yield from lay.block(block)
    total, *_ = report.cost.blocks
    cost = report.cost if verbose else replace(report.cost, blocks=(total,))
    for section in (*report.skills, cost):
        yield from lay.block(section)
    for note in report.notes:
        if note not in told:
            yield from paragraph(f"note: {note}", width, hang="  ")
    yield Line()
    if result.rollouts and result.skills:
        home = result.settings.get("dir", HOME)
        yield Line(one_line(f"Transcripts are in {home}/runs/{result.run}/{PAGE}."))
    if live and result.resume:
        yield Line(f"To continue where it stopped{_TERMS.get(result.status, '')}:")
        yield Line(one_line(result.resume))
    elif report.advice.command:
        yield Line("Next attempt:")
        yield Line(one_line(report.advice.command))
    else:
        yield Line("To look further:")
        look = "watch {}" if verbose else "show {} --verbose"
        yield Line(f"pytest-skillopt {look.format(one_line(result.run))}")


class Layout:
    """Layout of blocks for a terminal."""

    def __init__(self, width: int, *, verbose: bool) -> None:
        self._width = width
        self._verbose = verbose
        self._diff_lines = 10**9 if verbose else MOST_DIFF_LINES
        """Lines of diffs that still fit."""

    def block(self, block: Block) -> Iterator[Line]:
        """Lay out a block; a table, a diff and a section begin with an empty line."""
        match block:
            case blocks.Paragraph(text, look):
                indent = "  " if look == "hint" else ""
                yield from paragraph(_words(text), self._width, look, indent=indent)
            case blocks.Items(rows, look):
                mark = "caution: " if look == "careful" else "- "
                for row in rows:
                    yield from paragraph(f"{mark}{_words(row)}", self._width, look, hang="  ")
            case blocks.Command(text):
                yield Line(one_line(text))
            case blocks.Table():
                yield Line()
                yield from self._table(block)
            case blocks.Diff(text):
                yield Line()
                yield from self.diff(text)
            case blocks.Section():
                yield from self._section(block)

    def _section(self, section: Section) -> Iterator[Line]:
        title = _words(section.title)
        if section.is_folded and not self._verbose:
            yield from paragraph(f"{title}.", self._width, indent="  ", hang="  ")
            return
        yield Line()
        yield from paragraph(title, self._width, "bold", hang="  ")
        inside = [line for block in section.blocks for line in self.block(block)]
        yield from inside[1:] if inside and not inside[0].text else inside

    def _table(self, table: Table) -> Iterator[Line]:
        rows = [_cells(row) for row in table.rows]
        shown = rows if self._verbose else rows[:MOST_ROWS]
        head = [table.head] if table.head else []
        laid = columns([*head, *shown], table.align)
        looks = [*([""] * len(head)), *(table.looks or [""] * len(rows))]
        for text, look in zip(laid, looks, strict=False):
            yield Line(text, look)
        if len(rows) > len(shown):
            yield Line(f"  and {words.number(len(rows) - len(shown))} more")

    def diff(self, text: str) -> Iterator[Line]:
        """Colour a unified diff without wrapping it."""
        rows = text.removesuffix("\n").split("\n")
        shown = rows[: max(self._diff_lines, 0)]
        self._diff_lines -= len(rows)
        for row in shown:
            header = row.startswith(("---", "+++"))
            look = "bold" if header else _DIFF.get(row[:1], "")
            yield Line(row, look)
        if len(rows) > len(shown):
            yield Line(f"... {words.plural(len(rows) - len(shown), 'more line')} of the diff")


def _cells(row: Sequence[Cell]) -> list[str]:
    return [one_line(_words(cell(value))) for value in row]


def _words(text: Inline) -> str:
    """Write a text; code with spaces stands in quotes."""
    if isinstance(text, str):
        return text
    pieces = []
    for piece in text:
        if isinstance(piece, Code):
            excerpt = clip(one_line(piece), MOST_CODE)
            if " " in excerpt:
                excerpt = f'"{excerpt}"'
            pieces.append(excerpt)
        else:
            pieces.append(piece)
    return "".join(pieces)


def columns(rows: Sequence[Sequence[str]], align: str, *, indent: str = "  ") -> list[str]:
    """Align rows in columns as wide as their widest cell; ``align`` has an l or r for each."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    laid = []
    for row in rows:
        cells = zip(row, widths, align, strict=True)
        padded = [cell.rjust(n) if side == "r" else cell.ljust(n) for cell, n, side in cells]
        laid.append((indent + "  ".join(padded)).rstrip())
    return laid
