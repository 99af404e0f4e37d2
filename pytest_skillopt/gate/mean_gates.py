"""Gates that compare the means of two suites: the bare rule, and stricter forms of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.gate.decision import SequentialGate, Settled
from pytest_skillopt.gate.draws import Round
from pytest_skillopt.gate.evidence import exact_test
from pytest_skillopt.gate.verdict import CANDIDATE, INCUMBENT
from pytest_skillopt.gate.wording import change_of

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pytest_skillopt.gate.decision import Plan
    from pytest_skillopt.gate.verdict import Verdict


class StrictGate(SequentialGate):
    """The bare rule: K fresh samples of both arms of every task, the greater mean wins.

    Accepts an edit that changes nothing in almost half of all cases, whatever K is.
    """

    name = "strict"
    stream = "fresh/{decision}"
    confirmations = 1

    def decide(self) -> Plan:
        fresh = self.stream.format(decision=self.decision)
        self.streams = {INCUMBENT: fresh, CANDIDATE: fresh}
        for _ in range(self.confirmations):
            self.tallies.forget()
            both = self.wants(INCUMBENT, self.tasks) + self.wants(CANDIDATE, self.tasks)
            yield Round(both * self.options.rollouts, both)
            if not self.wins():
                return self._reject_for_rule()
        must_pass = [task for task in self.tasks if task in self.must_pass]
        yield from self.watch_over(must_pass)
        if not self.wins():
            return self._reject_for_rule()
        return self.verdict("accepted", f"the suite's mean rose from {self._moved()}")

    def watch_over(self, must_pass: Sequence[str]) -> Generator[Round, None, None]:
        """Sample those that look broken until they no longer do; end the decision when one is."""
        broken = yield from self.settle(must_pass, self.guard_bars(must_pass))
        if broken:
            reason = f"must pass, but broken: {self.tallies.compared(broken)}"
            raise Settled(self.verdict("rejected", reason))

    def _reject_for_rule(self) -> Verdict:
        return self.verdict("rejected", f"{self.shortfall()}: {self._moved()}")

    def wins(self) -> bool:
        return self.tallies.improves()

    def shortfall(self) -> str:
        """Why the gate rejects, in words, when the candidate does not win."""
        return "the suite's mean did not strictly rise"

    def _moved(self) -> str:
        return change_of(self.tallies.mean(INCUMBENT), self.tallies.mean(CANDIDATE))


class ConfirmGate(StrictGate):
    """The bare rule twice, the second time on samples of its own."""

    name = "confirm"
    confirmations = 2


class MarginGate(StrictGate):
    """The mean has to rise by more than a fixed margin."""

    name = "margin"

    def wins(self) -> bool:
        gain = self.tallies.mean(CANDIDATE) - self.tallies.mean(INCUMBENT)
        return self.tallies.improves() and gain > self.options.margin + 1e-12

    def shortfall(self) -> str:
        return f"the suite's mean did not rise by more than {100 * self.options.margin:g} points"


class PairedGate(StrictGate):
    """The bare rule, and an exact stratified test of passes against chance at ``alpha``."""

    name = "paired"

    def wins(self) -> bool:
        return self.tallies.improves() and self._p_value() <= self.alpha

    def shortfall(self) -> str:
        return f"the gain may be chance (p = {self._p_value():.2g}, alpha = {self.alpha:g})"

    def _p_value(self) -> float:
        pairs = [(self.tallies[CANDIDATE, t], self.tallies[INCUMBENT, t]) for t in self.tasks]
        return exact_test([(new.passed, new.n, old.passed, old.n) for new, old in pairs])
