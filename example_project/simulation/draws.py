"""Chance that is a pure function of what was asked: the same request always draws the same."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

_T = TypeVar("_T")


class Draws:
    """Independent draws under one seed, each addressed by a label instead of by its order.

    Addressing by label keeps a draw stable when code elsewhere asks for one more.
    """

    def __init__(self, *seed: str) -> None:
        self._seed = hashlib.sha256("\x1f".join(seed).encode()).digest()

    def uniform(self, label: str) -> float:
        """A number in [0, 1)."""
        digest = hashlib.sha256(self._seed + label.encode()).digest()
        return int.from_bytes(digest[:7], "big") / 2**56

    def chance(self, label: str, probability: float) -> bool:
        return self.uniform(label) < probability

    def pick(self, label: str, choices: Sequence[_T]) -> _T:
        """One of ``choices``, which must not be empty."""
        return choices[int(self.uniform(label) * len(choices))]

    def shuffle(self, label: str, items: Sequence[_T]) -> list[_T]:
        order = sorted(range(len(items)), key=lambda i: self.uniform(f"{label}/{i}"))
        return [items[i] for i in order]
