"""Duration of a training with a number of lanes, estimated from the calls that it waited for.

Rollouts that are submitted together run at once, as many as there are lanes, and so do questions of
``reflect`` between two of its ends, as many as the trainer asks at once. Equal questions are asked
one after the other, and so are those of other stages. The default search asks beside the rollouts
of a round, so the longer of both counts.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from pytest_skillopt.search.budget import calls_at_once

ROLLOUT, REPLY = 0.5, 1.0
"""Seconds that one takes."""


@dataclass
class _Round:
    """Calls that the training waits for together."""

    rollouts: list[int] = field(default_factory=list)
    """Sizes of the batches of them, one after the other."""
    analysts: Counter[str] = field(default_factory=Counter)
    """Questions of ``reflect``, equal ones counted."""
    others: int = 0
    """Number of other questions."""
    is_beside: bool = False
    """Whether the questions are asked beside the rollouts."""

    def __bool__(self) -> bool:
        return bool(self.rollouts or self.analysts or self.others)

    def wall(self, lanes: int) -> float:
        """Seconds that it takes."""
        rolled = ROLLOUT * sum(math.ceil(count / lanes) for count in self.rollouts)
        waves = self.others
        if self.analysts:
            waves += max(
                math.ceil(self.analysts.total() / calls_at_once(lanes)), *self.analysts.values()
            )
        asked = REPLY * waves
        return max(rolled, asked) if self.is_beside else rolled + asked


class Timeline:
    """The rounds of one training, in their order."""

    def __init__(self) -> None:
        self._rounds = [_Round()]

    def rolled(self, count: int) -> None:
        """Note that so many rollouts begin."""
        if count:
            self._rounds[-1].rollouts.append(count)

    def asked(self, stage: str, prompt: str) -> None:
        """Note a question to the optimizer."""
        if stage == "reflect":
            self._rounds[-1].analysts[prompt] += 1
        else:
            self._rounds[-1].others += 1

    def end_round(self, *, is_beside: bool = False) -> None:
        """Note that the training has waited for all calls so far."""
        self._rounds[-1].is_beside = is_beside
        self._rounds.append(_Round())

    @property
    def rounds(self) -> int:
        """Times that the training waits."""
        return sum(map(bool, self._rounds))

    @property
    def width(self) -> float:
        """Mean number of rollouts in a batch of them."""
        batches = [count for one in self._rounds for count in one.rollouts]
        return sum(batches) / max(1, len(batches))

    def wall(self, lanes: int) -> float:
        """Seconds that the training takes."""
        return sum(one.wall(lanes) for one in self._rounds)

    def ideal(self, lanes: int) -> float:
        """Seconds that a thread pool takes for the same calls, none waiting for another."""
        rollouts = sum(sum(one.rollouts) for one in self._rounds)
        replies = sum(one.analysts.total() + one.others for one in self._rounds)
        return (ROLLOUT * rollouts + REPLY * replies) / lanes
