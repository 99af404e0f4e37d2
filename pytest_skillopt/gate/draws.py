"""The draws of a decision: which sample answers which want, and when a round is complete."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pytest_skillopt.gate.data import Draw

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.gate.data import Arm, Sample

TAPE = "tape"
SCREEN = "screen"


class Want(NamedTuple):
    """One more sample of a task, whichever index it turns out to have."""

    arm: Arm
    task: str
    stream: str


class Round(NamedTuple):
    """Samples wanted at once, and those probably wanted next, the most useful first."""

    wants: Sequence[Want]
    outlook: Iterable[Want] = ()


class Draws:
    """Numbers the samples that are wanted, and gathers the answers to one batch of them."""

    def __init__(self) -> None:
        self._drawn: Counter[Want] = Counter()
        self._batch: dict[Draw, Sample | None] = {}
        self._open = 0

    @property
    def pending(self) -> tuple[Draw, ...]:
        """The current batch, answered or not."""
        return tuple(self._batch)

    @property
    def answered(self) -> bool:
        """Whether there is a batch, and all of it has been told."""
        return bool(self._batch) and not self._open

    @property
    def total(self) -> int:
        """How many samples have been asked for."""
        return self._drawn.total()

    def open(self, wants: Iterable[Want]) -> None:
        """Begin a batch."""
        for want in wants:
            index = self._drawn.get(want, 0)
            self._batch[Draw(*want, index)] = None
            self._drawn[want] = index + 1
        self._open = len(self._batch)

    def note(self, sample: Sample) -> None:
        """Keep the answer to a draw of the batch.

        Raises:
            ValueError: a sample that was not asked for, or that contradicts one told before.
        """
        known = self._batch.get(sample.draw, sample)
        if known is None:
            self._batch[sample.draw] = sample
            self._open -= 1
        elif sample.draw not in self._batch:
            raise ValueError(f"{sample.draw} was not asked for")
        elif known != sample:
            raise ValueError(f"{sample.draw} was told before with another outcome")

    def close(self) -> list[Sample]:
        """End the batch: its samples in the order of their draws, whatever that of arrival."""
        batch, self._batch = self._batch, {}
        return [sample for sample in batch.values() if sample]

    def ahead(self, wants: Iterable[Want], limit: int) -> tuple[Draw, ...]:
        """The draws that up to ``limit`` wants would get if they were opened next."""
        drawn = Counter[Want]()
        draws = []
        for want in islice(wants, limit):
            draws.append(Draw(*want, index=self._drawn[want] + drawn[want]))
            drawn[want] += 1
        return tuple(draws)

    def tape(self, arm: Arm, tasks: Iterable[str]) -> dict[str, int]:
        """How many samples of the stream ``tape`` have been drawn, by task."""
        return {task: drawn for task in tasks if (drawn := self._drawn[Want(arm, task, TAPE)])}
