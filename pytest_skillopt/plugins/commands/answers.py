"""The answers of a stubbed command, by patterns of its arguments."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


@dataclass(frozen=True)
class Exit:
    """An answer with an exit code, from 0 to 255, and texts for standard error and output."""

    code: int
    err: str = ""
    out: str = ""


class Unstubbed(Enum):
    """Answers without a text of the test's own."""

    REFUSE = "refuse"
    PASS = "pass"
    SPY = "spy"


REFUSE = Unstubbed.REFUSE
"""Exit with 126 and a message; also done if no pattern matches."""
PASS = Unstubbed.PASS
"""Run the real program; its arguments are recorded, not its output."""
SPY = Unstubbed.SPY
"""Run the real program, and record its output, too."""


Function = Callable[[list[str], str, Path], "str | Exit | None"]
"""Answers by arguments, standard input and working directory; None: the next pattern does."""
Answer = str | Exit | Unstubbed | Function


class Answers:
    """Answers by pattern: words, as a shell reads them, with which the arguments begin.

    A word is matched as by ``fnmatch``. Of several patterns the one with the most words counts,
    of these the first.

    Args:
        name: the command, for errors.
        given: answers by pattern, or a function for all arguments.

    Raises:
        TypeError: an answer is of another type.
        ValueError: a pattern that no shell can read, or an exit code out of range.
    """

    def __init__(self, name: str, given: Mapping[str, Answer] | Function) -> None:
        table = given if isinstance(given, Mapping) else {"": given}
        self._rows: list[tuple[list[str], Answer]] = []
        for pattern, answer in table.items():
            place = f"skill_commands({name!r}): the answer to {pattern!r}"
            if not isinstance(answer, str | Exit | Unstubbed) and not callable(answer):
                raise TypeError(f"{place} is neither a text, Exit(...), a function, PASS nor SPY")
            if isinstance(answer, Exit) and not 0 <= answer.code <= 255:
                raise ValueError(f"{place} has the exit code {answer.code}, not 0 to 255")
            try:
                words = shlex.split(pattern)
            except ValueError as error:
                raise ValueError(f"skill_commands({name!r}): {pattern!r}: {error}") from None
            self._rows.append((words, answer))
        self._rows.sort(key=lambda row: -len(row[0]))

    def find(self, arguments: Sequence[str]) -> Iterator[Answer]:
        """Yield the answers whose patterns match, the best first."""
        for words, answer in self._rows:
            if len(words) <= len(arguments) and all(map(fnmatchcase, arguments, words)):
                yield answer

    @property
    def may_pass(self) -> bool:
        """Whether the real program is needed."""
        return any(answer in (Unstubbed.PASS, Unstubbed.SPY) for _, answer in self._rows)

    @property
    def has_function(self) -> bool:
        return any(callable(answer) for _, answer in self._rows)

    def described(self) -> list[list[str]]:
        """List patterns and answers as texts, without what a function does."""
        told = [
            (words, "function" if callable(answer) else repr(answer))
            for words, answer in self._rows
        ]
        return [[*words, answer] for words, answer in told]


def in_order(words: Iterable[str], arguments: Iterable[str]) -> bool:
    """Return whether the words stand among the arguments in this order, others between them."""
    rest = iter(arguments)
    return all(any(fnmatchcase(argument, word) for argument in rest) for word in words)
