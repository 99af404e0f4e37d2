"""Gates that stop as soon as their verdict is certain, whatever the samples left would give."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_skillopt.gate.decision import SequentialGate
from pytest_skillopt.gate.draws import TAPE, Round
from pytest_skillopt.gate.verdict import CANDIDATE, INCUMBENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.gate.decision import Plan

_NOTHING = 1e-12
"""Sums of rates closer to zero than this are zero."""


class CurtailedGate(SequentialGate):
    """Where one sample tells all: stops as soon as the verdict can no longer change.

    The tasks with the most room to improve come first, and every batch is the least number of
    samples that could settle the matter, so none is wasted. A task that gets worse rejects at once,
    unless trades are allowed.
    """

    name = "curtailed"

    def decide(self) -> Plan:
        self.streams = {INCUMBENT: TAPE, CANDIDATE: TAPE}
        yield Round(self.wants(INCUMBENT, self.tasks), self.wants(CANDIDATE, self.tasks))
        left = sorted(self.tasks, key=lambda task: self.tallies[INCUMBENT, task].mean)
        while True:
            done = [task for task in self.tasks if self.tallies[CANDIDATE, task].n]
            worse = [task for task in done if self.tallies.gain(task) < 0]
            if broken := [task for task in worse if self._blocks(task)]:
                return self.verdict("rejected", f"broken: {self.tallies.compared(broken)}")
            balance = math.fsum(self.tallies.gain(task) for task in done)
            if balance + self._room(left) <= _NOTHING:
                return self.verdict(
                    "rejected",
                    "the suite's mean cannot strictly rise any more: "
                    f"{balance:+.3g} tasks after {len(done)} of {len(self.tasks)}",
                )
            if self._is_won(balance, left):
                return self.verdict(
                    "accepted",
                    "the suite's mean rises whatever the rest gives: "
                    f"{balance:+.3g} tasks after {len(done)} of {len(self.tasks)}",
                )
            size = next(m for m in range(1, len(left) + 1) if self._could_settle(balance, left, m))
            yield Round(self.wants(CANDIDATE, left[:size]), self.wants(CANDIDATE, left[size:]))
            left = left[size:]

    def _could_settle(self, balance: float, left: Sequence[str], size: int) -> bool:
        """Whether some outcomes of the next ``size`` tasks would end the decision."""
        tried, rest = left[:size], left[size:]
        return (
            any(self._blocks(task) and self._risk([task]) > 0 for task in tried)
            or balance - self._risk(tried) + self._room(rest) <= _NOTHING
            or self._is_won(balance + self._room(tried), rest)
        )

    def _is_won(self, balance: float, left: Sequence[str]) -> bool:
        """Whether the candidate wins whatever the tasks that are left give."""
        blocking = [task for task in left if self._blocks(task)]
        return balance - self._risk(left) > _NOTHING and not self._risk(blocking)

    def _blocks(self, task: str) -> bool:
        return not self.options.trades or task in self.must_pass

    def _room(self, tasks: Sequence[str]) -> float:
        """The most that the tasks can win."""
        return math.fsum(1 - self.tallies[INCUMBENT, task].mean for task in tasks)

    def _risk(self, tasks: Sequence[str]) -> float:
        """The most that they can lose."""
        return math.fsum(self.tallies[INCUMBENT, task].mean for task in tasks)
