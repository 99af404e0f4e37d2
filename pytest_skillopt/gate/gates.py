"""Gates ``strict`` and ``off``, and the table of all gates by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.addons import merged
from pytest_skillopt.gate.engine import SequentialGate
from pytest_skillopt.gate.sequential import DefaultGate

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt.gate.data import Verdict
    from pytest_skillopt.gate.engine import Plan


class StrictGate(SequentialGate):
    """The literal rule: K fresh samples of both arms of every task, the greater mean wins.

    It accepts almost half of all edits that change nothing, whatever K is.
    """

    name = "strict"
    confirmations = 1

    def decide(self) -> Plan:
        self.sample_from("fresh")
        for _ in range(self.confirmations):
            self.counts.forget()
            yield self.whole_rounds(self.options.rollouts)
            if not self.wins():
                return self._reject_for_rule()
        broken = yield from self.follow_suspects(list(self.guard_bars()), self.options.focus)
        if broken:
            return self.verdict("rejected", self.refuse_for(broken))
        if not self.wins():
            return self._reject_for_rule()
        return self.verdict("accepted", f"the suite's mean rose from {self.counts.moved()}")

    def _reject_for_rule(self) -> Verdict:
        return self.verdict("rejected", f"{self.shortfall()}: {self.counts.moved()}")

    def wins(self) -> bool:
        return self.counts.improves()

    def shortfall(self) -> str:
        """Return the reason for a rejection if the candidate does not win."""
        return "the suite's mean did not strictly rise"


class OffGate(SequentialGate):
    """No gate: accept every candidate, measure nothing, and say so."""

    name = "off"
    validated = False

    def decide(self) -> Plan:
        yield from ()
        return self.verdict("accepted", "not validated: the gate is off")


GATES: dict[str, type[SequentialGate]] = {
    gate.name: gate for gate in (DefaultGate, StrictGate, OffGate)
}
"""Gates by name. An add-on declares further ones in its table ``GATES``: functions, by name, that
return the class."""


def gate_class(name: str) -> type[SequentialGate]:
    """Find a gate by its name.

    Raises:
        ValueError: no gate has this name.
    """
    if name in GATES:
        return GATES[name]
    gates: dict[str, Callable[[], type[SequentialGate]]] = merged("GATES")
    if name not in gates:
        named = ", ".join([*GATES, *gates])
        raise ValueError(f"there is no gate {name!r}; the gates are {named}")
    return gates[name]()
