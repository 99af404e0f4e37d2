"""Blocks of a report: text, lists, tables and what else a layout writes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_skillopt import words
from pytest_skillopt.report import figures
from pytest_skillopt.run.result import Arm, Rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.run.result import RolloutSample, StepRow


class Code(str):
    """Text that is shown as it is: a path, a task, a setting, a line of a skill."""

    __slots__ = ()


Inline = str | tuple[str, ...]
"""A text, or its pieces, some of which are ``Code``."""
Cell = Inline | Rate | Arm
"""A cell of a table."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph."""

    text: Inline
    look: str = ""
    """``good``, ``careful``, ``bad``, ``bold``, or ``hint`` for an explanation."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    rows: tuple[Inline, ...]
    look: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table; without a head, its rows are a name and a value each."""

    head: tuple[str, ...]
    align: str
    """An ``l`` or ``r`` for each column."""
    rows: tuple[tuple[Cell, ...], ...]
    looks: tuple[str, ...] = ()
    """One for each row, or none at all."""
    samples: tuple[tuple[tuple[str, RolloutSample], ...], ...] = ()
    """Transcripts of each row, each with the name of its side; or none at all."""

    @classmethod
    def filled(
        cls, head: Sequence[str], align: str, rows: Sequence[Sequence[Cell]], **more: Any
    ) -> Table:
        """Make a table without the columns that no row fills."""
        kept = [column.count("") < len(rows) for column in zip(*rows, strict=True)]
        body = [tuple(itertools.compress(row, kept)) for row in rows]
        sides = "".join(itertools.compress(align, kept))
        return cls(tuple(itertools.compress(head, kept)), sides, tuple(body), **more)


@dataclass(frozen=True, slots=True)
class Diff:
    """Lines of a unified diff."""

    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command to copy."""

    text: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Pass rates over steps; only a page draws them."""

    rows: Sequence[StepRow]


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a title; of a folded one, a short layout has only the title."""

    title: Inline
    blocks: tuple[Block, ...]
    is_folded: bool = False


Block = Paragraph | Items | Table | Diff | Command | Curve | Section


def plain(text: Inline) -> str:
    """Return a text without what marks its pieces."""
    return text if isinstance(text, str) else "".join(text)


def cell(value: Cell) -> Inline:
    """Write a cell in words."""
    if isinstance(value, Rate):
        return f"{words.percent(value.rate)} ({figures.interval(value)})"
    if isinstance(value, Arm):
        return f"{value.passed} of {value.n}"
    return value
