"""Gates besides the default one: the rule that the mean must rise, stricter forms, and none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.gate.counts import OneCount
from pytest_skillopt.gate.data import ARMS, CANDIDATE, INCUMBENT
from pytest_skillopt.gate.engine import NOTHING, SequentialGate

if TYPE_CHECKING:
    from pytest_skillopt.gate.data import Verdict
    from pytest_skillopt.gate.engine import Plan


FOCUS = 0.3
"""E-value from which a task that can refuse the edit is sampled again."""


class StrictGate(SequentialGate):
    """The literal rule: K fresh samples of both arms of every task, the greater mean wins.

    It accepts almost half of all edits that change nothing, whatever K is.
    """

    name = "strict"
    confirmations = 1

    def decide(self) -> Plan:
        self.sample_from("fresh")
        for _ in range(self.confirmations):
            self._start_from_zero()
            yield self.whole_rounds(self.options.rollouts)
            if gap := self.counts.gap():
                return self.verdict("unmeasured", gap)
            if not self._wins():
                return self._reject_for_rule()
        broken = yield from self.follow_suspects(list(self.guard_bars()), FOCUS)
        if broken:
            return self.verdict("rejected", self.refuse_for(broken))
        if not self._wins():
            return self._reject_for_rule()
        return self.verdict("accepted", f"the suite's mean rose from {self.counts.moved()}")

    def _start_from_zero(self) -> None:
        """Forget the samples so far: they have been judged."""
        for task in self.tasks:
            for arm in ARMS:
                self.counts[arm, task] = OneCount()

    def _reject_for_rule(self) -> Verdict:
        return self.verdict(
            "rejected", f"the suite's mean did not strictly rise: {self.counts.moved()}"
        )

    def _wins(self) -> bool:
        return self.counts.mean(CANDIDATE) - self.counts.mean(INCUMBENT) > NOTHING


class OffGate(SequentialGate):
    """No gate: accept every candidate, measure nothing, and say so."""

    name = "off"
    validated = False

    def decide(self) -> Plan:
        yield from ()
        return self.verdict("accepted", "not validated: the gate is off")


class ConfirmGate(StrictGate):
    """Gate that requires a rise of the mean twice, the second time on new samples."""

    name = "confirm"
    confirmations = 2


GATES: dict[str, type[SequentialGate]] = {
    gate.name: gate for gate in (StrictGate, OffGate, ConfirmGate)
}
