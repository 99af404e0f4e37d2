"""Markdown layout of a view, and ``summary.md``: the report of a job. All text in it is inert."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from pytest_skillopt import words
from pytest_skillopt.report import blocks
from pytest_skillopt.report.blocks import Code, cell, plain
from pytest_skillopt.report.markup import code, fenced, prose
from pytest_skillopt.report.view import advice_blocks, view
from pytest_skillopt.run.directory import PAGE
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_skillopt.report.blocks import Block, Cell, Inline, Section, Table
    from pytest_skillopt.run.result import Result

SUMMARY_LIMIT = 900_000
"""Bytes; GitHub refuses a job summary above 1 MiB."""

MOST_DIFF_LINE = 2_000


def render_summary(result: Result, limit: int = SUMMARY_LIMIT) -> str:
    """Write the report in at most ``limit`` bytes of UTF-8, at least 2,000.

    Blocks that do not fit are left out.
    """
    report = view(result)
    lay = Layout()
    where = f"{code(PAGE)} of run {code(result.run, 200)}"
    pointer = f"Transcripts and all figures: {where}; of a CI job, in its artifact.\n"
    cut = f"_Shortened to fit._ {pointer}"
    advice = report.advice
    told: list[Block] = list(advice_blocks(advice))
    if advice.command:
        told.append(blocks.Command(advice.command))
    told += [*report.skills, report.cost]
    if report.notes:
        told.append(blocks.Section("Notes", (blocks.Items(report.notes),)))
    told.append(report.again)
    parts = [f"## {advice.answer}"]
    for block in told:
        parts += lay.block(block)
    kept = []
    room = limit - len(cut.encode())
    for part in parts:
        size = len(part.encode()) + 2
        if size <= room:
            kept.append(part)
            room -= size
    return "\n\n".join([*kept, pointer if len(kept) == len(parts) else cut])


def _fitting(parts: Sequence[str], room: int) -> tuple[list[str], int]:
    """Keep those parts from the beginning that fit into ``room`` bytes; count the others."""
    for place, part in enumerate(parts):
        room -= len(part.encode()) + 2
        if room < 0:
            return list(parts[:place]), len(parts) - place
    return list(parts), 0


class Layout:
    """Layout of blocks in Markdown."""

    def __init__(
        self, most_items: int = 12_000, most_diff: int = 60_000, rest: str = "the patch"
    ) -> None:
        """Take the maximum bytes of a list or table, and of a diff, and where its rest is."""
        self._most_items = most_items
        self._most_diff = most_diff
        self._rest = rest

    def block(self, block: Block, level: int = 3) -> Iterator[str]:
        """Yield the parts of a block, each of which is kept or left out as a whole."""
        match block:
            case blocks.Paragraph(inline, look):
                text = self.words(inline)
                yield f"**{text}**" if "bold" in look else text
            case blocks.Items(rows, look):
                mark = "> - " if look == "careful" else "- "
                yield self._lines(f"{mark}{self.words(row)}" for row in rows)
            case blocks.Command(text):
                yield fenced(text[:4000], "sh")
            case blocks.Table():
                yield self._table(block)
            case blocks.Diff(text):
                yield from self._diff(text)
            case blocks.Section():
                yield from self._section(block, level)

    def _section(self, section: Section, level: int) -> Iterator[str]:
        if section.is_folded:
            parts = [part for block in section.blocks for part in self.block(block)]
            inside = "\n\n".join(parts)
            head = html.escape(plain(section.title))
            yield f"<details><summary>{head}</summary>\n\n{inside}\n\n</details>"
            return
        yield f"{'#' * level} {self.words(section.title)}"
        for block in section.blocks:
            yield from self.block(block, level + 1)

    def _table(self, table: Table) -> str:
        if not table.head:
            lines = []
            for name, value in table.rows:
                lines.append(f"- {self.words(cell(name))}: {self.words(cell(value))}")
            return self._lines(lines)
        rule = [{"l": "---", "r": "---:"}[side] for side in table.align]
        head = f"{_row(table.head)}\n{_row(rule)}\n"
        return head + self._lines(_row(map(self._cell, row)) for row in table.rows)

    def _cell(self, value: Cell) -> str:
        text = cell(value)
        if text is not value:
            return plain(text)  # figures
        # A bar ends a cell, also within code.
        return self.code(text).replace("|", "\\|") if isinstance(text, Code) else self.words(text)

    def _diff(self, text: str) -> Iterator[str]:
        """Yield a block in which each line keeps its sign, so that GitLab runs none."""
        rows = text.removesuffix("\n").replace("\r\n", "\n").split("\n")
        kept, left = _fitting([row[:MOST_DIFF_LINE] for row in rows], self._most_diff)
        yield self.fence("\n".join(kept))
        if left:
            more = words.plural(left, "more line")
            yield f"**{more} of the change do not fit: read them in {self._rest}.**"

    def fence(self, text: str) -> str:
        """Make a code block of a diff."""
        return fenced(text, "diff")

    def _lines(self, lines: Iterable[str]) -> str:
        """Join the lines that fit, with the number of the others."""
        kept, left = _fitting(list(lines), self._most_items)
        if left:
            kept.append(f"\nand {words.number(left)} more")
        return "\n".join(kept)

    def words(self, text: Inline) -> str:
        """Write a text without markup and references."""
        pieces = (text,) if isinstance(text, str) else text
        return "".join(map(self._piece, pieces))

    def _piece(self, text: str) -> str:
        if isinstance(text, Code):
            return self.code(redact(text))
        before = " " * text.startswith(" ")
        after = " " * text.endswith(" ")
        return f"{before}{prose(redact(text), 1200)}{after}" if text.strip() else ""

    def code(self, text: str) -> str:
        """Write a piece of code."""
        return code(text)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
