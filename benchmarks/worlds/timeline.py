"""Duration of a training with a number of lanes, estimated from the calls that it waited for.

Calls of one round run at once, as many as there are lanes, of the optimizer at most as many as the
default of ``skillopt_optimizer_workers``; the next round begins when all have ended. Equal
questions to the optimizer are asked one after the other, and so are questions of stages other than
``reflect``.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from pytest_skillopt.settings import Settings

ROLLOUT, REPLY = 0.5, 1.0
"""Seconds that one takes."""


@dataclass
class Timeline:
    """The rounds of one training, in their order."""

    rollouts: list[int] = field(default_factory=list)
    """Rollouts of each round of them."""
    replies: list[Counter[str]] = field(default_factory=list)
    """Questions of each round of them, equal ones counted."""
    _stage: str = ""
    """Stage of the optimizer round that goes on; empty after a round of rollouts."""

    def rolled(self, count: int) -> None:
        """Note that a round of rollouts begins."""
        if count:
            self.rollouts.append(count)
            self._stage = ""

    def asked(self, stage: str, prompt: str) -> None:
        """Note a question to the optimizer.

        Questions of ``reflect`` between two rounds of rollouts are one round.
        """
        if stage != self._stage or stage != "reflect":
            self.replies.append(Counter())
        self._stage = stage
        self.replies[-1][prompt] += 1

    @property
    def rounds(self) -> int:
        """Times that the training waits."""
        return len(self.rollouts) + sum(max(asked.values()) for asked in self.replies)

    @property
    def width(self) -> float:
        """Mean number of rollouts in a round of them."""
        return sum(self.rollouts) / max(1, len(self.rollouts))

    def wall(self, lanes: int) -> float:
        """Seconds that the training takes."""
        workers = min(lanes, Settings().optimizer_workers)
        asked = (max(math.ceil(q.total() / workers), *q.values()) for q in self.replies)
        return ROLLOUT * sum(math.ceil(n / lanes) for n in self.rollouts) + REPLY * sum(asked)

    def ideal(self, lanes: int) -> float:
        """Seconds that a thread pool takes for the same calls, none waiting for another."""
        replies = sum(asked.total() for asked in self.replies)
        return (ROLLOUT * sum(self.rollouts) + REPLY * replies) / lanes
