"""Lines of plain text: harmless model text, aligned columns, wrapped paragraphs."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_skillopt.untrusted import bound, no_command, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NARROWEST = 40
"""Minimum width of wrapped text, in columns."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line with its markup: keywords of pytest's ``TerminalWriter.line``.

    The text never starts a command of a CI service.
    """

    text: str = ""
    markup: Mapping[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", no_command(self.text))


def one_line(text: str) -> str:
    """Turn untrusted text into one printable line."""
    return " ".join(printable(text).split())


def short(text: str, most: int = 1_200) -> str:
    """Shorten a text to its beginning and end, ``most`` characters together."""
    return bound(text, most * 3 // 4, most // 4)


def clip(text: str, width: int) -> str:
    """Cut to at most ``width`` characters; three dots show the cut."""
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


def paragraph(
    text: str,
    width: int,
    markup: Mapping[str, bool] | None = None,
    *,
    indent: str = "",
    hang: str = "",
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
        yield Line(line, markup or {})


def columns(rows: Sequence[Sequence[str]], align: str, *, indent: str = "  ") -> list[str]:
    """Align rows in columns as wide as their widest cell; ``align`` has an l or r for each."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(align))]
    laid = []
    for row in rows:
        cells = zip(row, widths, align, strict=True)
        padded = [cell.rjust(n) if side == "r" else cell.ljust(n) for cell, n, side in cells]
        laid.append((indent + "  ".join(padded)).rstrip())
    return laid
