"""Lines of plain text: model text made harmless, columns that line up, paragraphs that wrap."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_skillopt.untrusted import bound, no_command, printable

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


def short(text: str, most: int = 1_200) -> str:
    """The beginning and the end of a text that is longer than ``most`` characters."""
    return bound(text, most * 3 // 4, most // 4)


def clip(text: str, width: int) -> str:
    """At most ``width`` characters, the cut shown by three dots."""
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


def paragraph(
    text: str,
    width: int,
    markup: Mapping[str, bool] | None = None,
    *,
    indent: str = "",
    hang: str = "",
) -> Iterator[Line]:
    """Text of unknown origin as wrapped lines, those after the first indented by ``hang`` more.

    With a node id in it no word is broken, so that it can be copied, though it may be wider.
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
    """Lay rows out in columns as wide as their widest cell; ``align`` has an l or r for each."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(align))]
    laid = []
    for row in rows:
        cells = zip(row, widths, align, strict=True)
        padded = [cell.rjust(n) if side == "r" else cell.ljust(n) for cell, n, side in cells]
        laid.append((indent + "  ".join(padded)).rstrip())
    return laid
