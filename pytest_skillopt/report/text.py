"""Lines of plain text: model text made harmless, columns that line up, nothing wider than asked."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_skillopt.untrusted import no_command, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NARROWEST = 40
"""Columns below which nothing is wrapped any further."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line and how it is marked up: keywords of pytest's ``TerminalWriter.line``.

    No line starts a command of the CI that it is printed in, wherever its words come from.
    """

    text: str = ""
    markup: Mapping[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", no_command(self.text))


def one_line(text: str) -> str:
    """Text of unknown origin as a single printable line."""
    return " ".join(printable(text).split())


def cells(text: str) -> int:
    """Columns a terminal needs for ``text``: 2 for wide East Asian characters, 0 for marks."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def clip(text: str, width: int) -> str:
    """At most ``width`` columns, the cut shown by three dots."""
    if cells(text) <= width:
        return text
    return _head(text, width - 3) + "..." if width > 3 else "..."[: max(width, 0)]


def wrap(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """Break one line of text at spaces, and words that are too long anywhere.

    Args:
        text: without line breaks.
        width: columns of a line, the indentation included.
        first: indentation of the first line.
        rest: indentation of the others.
    """
    width = max(width, NARROWEST)
    lines: list[str] = []
    current = first
    empty = True
    for word in text.split():
        gap = "" if empty else " "
        if not empty and cells(current) + 1 + cells(word) > width:
            lines.append(current)
            current, gap = rest, ""
        while cells(current) + len(gap) + cells(word) > width:
            head = _head(word, width - cells(current))
            lines.append(current + head)
            word, current = word[len(head) :], rest
        current, empty = current + gap + word, False
    return [*lines, current] if not empty else [first.rstrip()]


def paragraph(
    text: str,
    width: int,
    markup: Mapping[str, bool] | None = None,
    *,
    indent: str = "",
    hang: str = "",
) -> Iterator[Line]:
    """Text of unknown origin as wrapped lines, those after the first indented by ``hang`` more."""
    for line in wrap(one_line(text), width, first=indent, rest=indent + hang):
        yield Line(line, markup or {})


def columns(rows: Sequence[Sequence[str]], align: str, *, indent: str = "  ") -> list[str]:
    """Lay rows out in columns as wide as their widest cell; ``align`` has an l or r for each."""
    widths = [max(cells(row[i]) for row in rows) for i in range(len(align))]
    laid = []
    for row in rows:
        padded = []
        for cell, width, side in zip(row, widths, align, strict=True):
            space = " " * (width - cells(cell))
            padded.append(space + cell if side == "r" else cell + space)
        laid.append((indent + "  ".join(padded)).rstrip())
    return laid


def encodable(text: str, encoding: str) -> str:
    """``text`` with what the terminal's encoding does not have written as an escape."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _head(word: str, width: int) -> str:
    taken = 0
    for i, char in enumerate(word):
        taken += cells(char)
        if taken > width:
            return word[: max(i, 1)]
    return word
