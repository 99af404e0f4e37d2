"""Variants of the staged gate, for suites that trade tasks or gain a little everywhere."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from pytest_skillopt.gate.draws import TAPE, Round
from pytest_skillopt.gate.evidence import exact_test
from pytest_skillopt.gate.gate import StagedGate
from pytest_skillopt.gate.verdict import CANDIDATE, INCUMBENT

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pytest_skillopt.gate.verdict import Verdict


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


class BroadTradingGate(BroadGate, TradingGate):
    """Staged, with trades and with the second test."""

    name = "staged, broad, net trades"


def _standard_errors(strata: Sequence[tuple[int, int, int, int]]) -> float:
    """The difference of the two suite means over its standard error."""
    gain, variance = 0.0, 0.0
    for passed, n, other_passed, other_n in strata:
        rate = (passed + other_passed + 0.5) / (n + other_n + 1)
        gain += passed / n - other_passed / other_n
        variance += rate * (1 - rate) * (1 / n + 1 / other_n)
    return gain / math.sqrt(variance)
