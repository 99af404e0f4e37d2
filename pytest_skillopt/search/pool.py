"""The edits that wait for a trial, and those that have lost one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_skillopt.edits.proposals import say_the_same, unite
from pytest_skillopt.edits.select import by_support

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_skillopt.edits.memory import Memory
    from pytest_skillopt.edits.proposals import Proposal


class Pool:
    """Edits by support. One that says the same as another adds to it; losers have few tries."""

    def __init__(self, memory: Memory, tries: int) -> None:
        """Args:
        tries: lost trials after which an edit is not tried alone again, in this run or a later
            one; it has one more try together with others.
        """
        self._memory = memory
        self._tries = tries
        self._waiting: list[Proposal] = []
        self._lost: list[Proposal] = []
        """Edits that lost and have a try left, together with others."""
        self._losses: Counter[str] = Counter()

    @property
    def waiting(self) -> tuple[Proposal, ...]:
        """The best supported first."""
        return tuple(by_support(self._waiting))

    def awaits(self, proposal: Proposal) -> bool:
        """Whether the edit waits for its trial already; it has more support now."""
        for i, known in enumerate(self._waiting):
            if say_the_same(known, proposal):
                self._waiting[i] = unite([known, proposal])
                return True
        return False

    def has_lost(self, proposal: Proposal) -> bool:
        """Whether the edit was tried often enough, in this run or an earlier one."""
        if self._losses[proposal.key] >= self._tries:
            return True
        known_fate = self._memory.attempt(proposal)
        return (
            known_fate is not None
            and known_fate.fate == "failed"
            and known_fate.times >= self._tries
        )

    def add(self, proposals: Iterable[Proposal]) -> None:
        self._waiting += proposals

    def remove(self, proposal: Proposal) -> None:
        self._waiting = [known for known in self._waiting if known != proposal]

    def lose(self, proposals: Iterable[Proposal]) -> None:
        """Count a lost trial, or a refusal of the gate that was final."""
        for proposal in proposals:
            self._losses[proposal.key] += 1
            if self._losses[proposal.key] <= self._tries:
                self._lost.append(proposal)

    def take_lost(self) -> list[Proposal]:
        """The edits that have a last try, the best supported first; they are gone from here."""
        lost, self._lost = by_support(self._lost), []
        return lost
