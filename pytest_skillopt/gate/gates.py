"""The gates by name."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pytest_skillopt.gate.curtailed import CurtailedGate
from pytest_skillopt.gate.decision import SequentialGate
from pytest_skillopt.gate.final import FinalGate
from pytest_skillopt.gate.gate import StagedGate
from pytest_skillopt.gate.gate_options import GateOptions
from pytest_skillopt.gate.mean_gates import (
    ConfirmGate,
    MarginGate,
    PairedGate,
    StrictGate,
)
from pytest_skillopt.gate.staged_variants import BroadGate, BroadTradingGate, TradingGate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_skillopt.gate.decision import Plan
    from pytest_skillopt.gate.gate import Gate
    from pytest_skillopt.gate.gate_options import GateTask


def make_gate(
    name: str,
    tasks: Sequence[GateTask],
    options: GateOptions | None = None,
    *,
    tape: Mapping[str, int] | None = None,
    decision: int | str | None = None,
    decisions_before: int = 0,
) -> Gate:
    """A gate by its name: a value of the setting ``gate``, a preset or ``final``.

    Args:
        name: the presets ``economy`` and ``thin`` are ``staged`` for smaller budgets.
        tasks: the suite, in any order.
        options: of them, ``trades`` and ``broad`` are for the staged gates, and ``deterministic``
            turns the staged and the strict gate into their exact short form.
        tape: how many samples of the incumbent's stream ``tape`` there are, by task: what
            ``Gate.tape`` of the last decision gave for the arm that went on.
        decision: names the fresh streams of this decision (default: its number).
        decisions_before: decisions taken earlier in this run.

    Raises:
        ValueError: an unknown name, a task that is there twice, a tape of an unknown task.
    """
    options = options or GateOptions()
    kind = _kind(name, options)
    if name in _PRESETS:
        options = _PRESETS[name](options)
    if name == "strict" and kind is CurtailedGate:
        options = dataclasses.replace(options, trades=True)
    gate = kind(tasks, options, tape=tape, decision=decision, decisions_before=decisions_before)
    if name in _PRESETS and kind is not CurtailedGate:
        gate.name = f"{gate.name}, {name}"
    return gate


class OffGate(SequentialGate):
    """No gate: takes every candidate, measures nothing, and says so."""

    name = "off"

    def decide(self) -> Plan:
        yield from ()
        verdict = self.verdict("accepted", "not validated: the gate is off")
        return dataclasses.replace(verdict, validated=False)


_STAGED: dict[tuple[bool, bool], type[SequentialGate]] = {
    (False, False): StagedGate,
    (True, False): BroadGate,
    (False, True): TradingGate,
    (True, True): BroadTradingGate,
}
_PRESETS = {"economy": GateOptions.economy, "thin": GateOptions.thin}
_PLAIN: dict[str, type[SequentialGate]] = {
    gate.name: gate
    for gate in (
        StrictGate,
        ConfirmGate,
        MarginGate,
        PairedGate,
        FinalGate,
        OffGate,
    )
}


def _kind(name: str, options: GateOptions) -> type[SequentialGate]:
    if name not in ("staged", *_PRESETS, *_PLAIN):
        known = ", ".join(["staged", *_PRESETS, *_PLAIN])
        raise ValueError(f"there is no gate {name!r}; the gates are {known}")
    if options.deterministic and name in ("staged", *_PRESETS, "strict"):
        return CurtailedGate
    return _PLAIN.get(name) or _STAGED[options.broad, options.trades]
