"""The gates by name: variants of the staged gate, and the plainer rules it is compared with."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, ClassVar

from pytest_skillopt.optimizer.decision import SequentialGate, Settled
from pytest_skillopt.optimizer.draws import TAPE, Round
from pytest_skillopt.optimizer.evidence import exact_test
from pytest_skillopt.optimizer.gate import StagedGate
from pytest_skillopt.optimizer.gate_options import GateOptions, GateTask
from pytest_skillopt.optimizer.verdict import CANDIDATE, INCUMBENT
from pytest_skillopt.optimizer.wording import change_of

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from pytest_skillopt.optimizer.decision import Plan
    from pytest_skillopt.optimizer.gate import Gate
    from pytest_skillopt.optimizer.verdict import Verdict


class TradingGate(StagedGate):
    """Staged, but a broken task may be paid for by fixed ones.

    In place of the guard, the tasks that credibly changed either way have to win by more than half
    a task on balance. Tasks that must pass still block.
    """

    name = "staged, net trades"

    def guarded(self) -> list[str]:
        return [task for task in self.tasks if task in self.must_pass]

    def apply_literal_rule(self) -> Verdict:
        changed = [*self.tallies.fixed(), *self.tallies.broken()]
        balance = math.fsum(self.tallies.gain(task) for task in changed)
        if changed and balance <= 0.5:
            return self.judge(
                "rejected",
                f"what was fixed outweighs what broke by only {balance:+.1f} tasks, "
                "more than half a task is needed",
            )
        return super().apply_literal_rule()


class BroadGate(StagedGate):
    """Staged, with a second test for gains that are spread thinly over many tasks.

    Where no single task stands out, complete rounds are compared by a group-sequential exact test,
    for about three times the samples. Each test has half of alpha. The first rounds of both tapes
    are compared, which no luck has selected: what the screen saw decides only whether the test is
    run, and that can only make accepting rarer.
    """

    name = "staged, broad"
    looks: ClassVar = {2: 0.3, 4: 0.3, 8: 0.4}
    """Rounds after which the test is looked at, and the share of its alpha spent there."""
    futility = 0.3
    """Standard errors of the difference below which the test stops."""

    @property
    def bar(self) -> float:
        return -math.log(self.alpha / 2)

    def seek_improvement(self) -> Generator[Round, None, bool]:
        found = yield from super().seek_improvement()
        if found or self._falls_behind():
            return found
        last = max(self.looks)
        yield from self.lay_tape(last)
        for rounds in range(1, last + 1):
            wants = self.wants(CANDIDATE, self.tasks, TAPE)
            yield Round(wants, wants)
            strata = [self._stratum(task, rounds, last) for task in self.tasks]
            if exact_test(strata) <= self.looks.get(rounds, 0.0) * self.alpha / 2:
                return True
            if _standard_errors(strata) < self.futility:
                return False
        return False

    def _falls_behind(self) -> bool:
        """Whether the candidate does worse on the tasks where it was tried."""
        tried = [task for task in self.tasks if self.tallies[CANDIDATE, task].n]
        return math.fsum(self.tallies.gain(task) for task in tried) < 0

    def _stratum(self, task: str, new: int, old: int) -> tuple[int, int, int, int]:
        passed = sum(self.tallies[CANDIDATE, task].rounds[:new])
        return passed, new, sum(self.tallies[INCUMBENT, task].rounds[:old]), old


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


class FinalGate(StrictGate):
    """The last comparison before the skill is written: fresh samples of the whole suite.

    Whatever was accepted had been the best of several tries on the samples that chose it; these
    have chosen nothing. Give it all train and val tasks, and ``rollouts`` of at least 5.
    """

    name = "final"
    stream = "final"


class ShortFinalGate(FinalGate):
    """The last comparison where means are short: the verdict of one round, for less than a round.

    The candidate is sampled once on every task, the incumbent on one task after the other until the
    strict rule is settled whatever the rest would give. So the verdict is that of a complete round,
    in whatever order the incumbent's tasks come: those that it fails most likely come first, which
    settles it soonest. Tasks that must pass are always measured under both.
    """

    name = "final, short"

    def decide(self) -> Plan:
        self.streams = {INCUMBENT: self.stream, CANDIDATE: self.stream}
        left = self._in_order()
        must_pass = [task for task in left if task in self.must_pass]
        yield Round(
            self.wants(CANDIDATE, left) + self.wants(INCUMBENT, must_pass),
            self.wants(INCUMBENT, left),
        )
        yield from self.watch_over(must_pass)
        while left := [task for task in self._in_order() if not self.tallies[INCUMBENT, task].n]:
            balance = self._balance()
            if balance - len(left) > _NOTHING or balance <= _NOTHING:
                break
            failures = len(left) - balance
            size = min(len(left), math.floor(failures) + 1, math.ceil(balance))
            yield Round(self.wants(INCUMBENT, left[:size]), self.wants(INCUMBENT, left[size:]))
        return self._judge(len(left))

    def _in_order(self) -> list[str]:
        """The tasks, those that the options name first before the others."""
        first = [task for task in self.options.first if task in self.tasks]
        return [*first, *(task for task in self.tasks if task not in set(first))]

    def _balance(self) -> float:
        """Tasks won by the candidate, those counted for nothing that the incumbent still has."""
        return math.fsum(self.tallies.gain(task) for task in self.tasks)

    def _judge(self, left: int) -> Verdict:
        least = self._balance() - left
        if least > _NOTHING:
            return self.verdict(
                "accepted",
                f"the suite's mean rises by {least:+.3g} tasks or more, whatever the skill before "
                f"would do on {left} of {len(self.tasks)} tasks",
            )
        return self.verdict(
            "rejected",
            "the suite's mean cannot strictly rise any more: at best "
            f"{self._balance():+.3g} tasks of {len(self.tasks)}",
        )


class OffGate(SequentialGate):
    """No gate: takes every candidate, measures nothing, and says so."""

    name = "off"

    def decide(self) -> Plan:
        yield from ()
        verdict = self.verdict("accepted", "not validated: the gate is off")
        return dataclasses.replace(verdict, validated=False)


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


_NOTHING = 1e-12
"""Sums of rates closer to zero than this are zero."""


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
        name: the presets ``economy`` and ``thin`` are ``staged`` for smaller budgets, and
            ``final, short`` is ``final`` for those.
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


class _BroadTradingGate(BroadGate, TradingGate):
    name = "staged, broad, net trades"


_STAGED: dict[tuple[bool, bool], type[SequentialGate]] = {
    (False, False): StagedGate,
    (True, False): BroadGate,
    (False, True): TradingGate,
    (True, True): _BroadTradingGate,
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
        ShortFinalGate,
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


def _standard_errors(strata: Sequence[tuple[int, int, int, int]]) -> float:
    """The difference of the two suite means over its standard error."""
    gain, variance = 0.0, 0.0
    for passed, n, other_passed, other_n in strata:
        rate = (passed + other_passed + 0.5) / (n + other_n + 1)
        gain += passed / n - other_passed / other_n
        variance += rate * (1 - rate) * (1 / n + 1 / other_n)
    return gain / math.sqrt(variance)
