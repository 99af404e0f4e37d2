"""How thorough the last comparison is: five rounds, or what a cap leaves for it.

Without a cap both skills get ``final_rollouts`` fresh samples of every task. Under a cap that would
leave nothing to search with, so a share of it is kept, for whole rounds where they fit and else for
one round that stops as soon as its verdict is settled. Fewer samples are a wider interval in the
report; the rule, a strict rise on fresh samples of the whole suite, is the same for all.

Where the means are too small for gates on the way as well, the last comparison is the only decision
of the training, with the gate's evidence and guard in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_skillopt.settings import Settings

_SHARE = 0.2
"""Part of the cap, in (0, 1), that whole rounds may take."""
_SHORT = 1.65
"""Samples of a short comparison for each task: the candidate on all, the start on most."""
_SOLE = 2.0
"""The same where it is the only decision."""
_GUARD = 0.5
"""Samples for each task that whole rounds leave to its guard."""


@dataclass(frozen=True, slots=True)
class Final:
    """A last comparison over so many tasks."""

    tasks: int
    rollouts: int
    """Whole rounds of both skills; 0: one that stops when it is settled."""
    most: int
    """``final_rollouts`` of the settings."""
    sole: bool = False
    """It is the only decision: nothing has passed a gate before."""

    @property
    def gate(self) -> str:
        if self.sole:
            return "final, sole"
        return "final" if self.rollouts else "final, short"

    @property
    def samples(self) -> int:
        """What is kept back for it."""
        if self.rollouts:
            return 2 * self.rollouts * self.tasks
        return math.ceil((_SOLE if self.sole else _SHORT) * self.tasks)

    def within(self, left: int | None) -> Final:
        """What the search has left over goes into more rounds.

        Args:
            left: samples that may be taken; None without a cap.
        """
        if left is None:
            return replace(self, rollouts=self.most)
        kept = math.ceil(_GUARD * self.tasks) if self.sole else 0
        fitting = max(0, left - kept) // (2 * self.tasks)
        return replace(self, rollouts=min(self.most, max(fitting, self.rollouts)))


def plan_final(settings: Settings, tasks: int, *, sole_below: int = 0) -> Final:
    """The last comparison over so many train and val tasks under the caps of the settings.

    Args:
        sole_below: samples for each task, of the cap, below which it is the only decision.
    """
    most = settings.final_rollouts
    caps = [cap for cap in (settings.max_rollouts, settings.max_calls) if cap]
    if not caps:
        return Final(tasks, most, most)
    if min(caps) < sole_below * tasks:
        return Final(tasks, 0, most, sole=True)
    return Final(tasks, min(most, int(_SHARE * min(caps)) // (2 * tasks)), most)
