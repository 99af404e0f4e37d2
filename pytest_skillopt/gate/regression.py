"""Is a human's edit worse than what was there? The staged gate turned round."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

from pytest_skillopt.gate.counts import counted
from pytest_skillopt.gate.data import CANDIDATE, INCUMBENT, TAPE
from pytest_skillopt.gate.staged import StagedGate
from pytest_skillopt.gate.statistics import exact_test

if TYPE_CHECKING:
    from pytest_skillopt.gate.engine import Plan


class RegressionCheck(StagedGate):
    """The baseline is the incumbent, the edit under review the candidate.

    ``rejected`` means worse: it is credible that some task broke, or the suite as a whole passes
    less often by an exact test. ``unmeasured`` means that it looks worse and the samples do not
    settle it. ``accepted`` means that nothing of the kind was seen; it is no proof of equality.

    An edit that changes nothing is called worse with probability at most ``alpha``: half of it for
    the evidence on tasks, which may be looked at after every round, half for the two looks of the
    test. A fixed task pays for no broken one.
    """

    name = "check"
    alpha_of_tasks = 0.5
    looks = 2
    doubt = 0.2
    """P-value of the suite's loss below which "not worse" is not said."""

    def decide(self) -> Plan:
        p_value = 1.0
        for look in range(1, self.looks + 1):
            for rounds in range((look - 1) * self.options.kc, look * self.options.kc):
                yield self.up_to(INCUMBENT, max(rounds + 1, self.options.k0))
                short = [t for t in self.tasks if len(self.counts[CANDIDATE, t].rounds) <= rounds]
                yield self.wants(CANDIDATE, short, TAPE)
                found = yield from self.follow_promising(self.tasks)
                if found:
                    worse = self.counts.broken() or [max(self.tasks, key=self.counts.down)]
                    return self.judge("rejected", f"worse on {self.counts.compared(worse)}")
            p_value = self._p_value(look * self.options.kc)
            if p_value <= self.alpha / 2 / self.looks:
                return self.judge(
                    "rejected", f"the suite passes less often: {self._moved(p_value)}"
                )
            if p_value > self.doubt:
                return self.judge("accepted", f"nothing is credibly worse: {self._moved(p_value)}")
        return self.judge(
            "unmeasured",
            f"looks worse, but may be chance: {self._moved(p_value)}; {self._missing()} would tell",
        )

    def sought(self, task: str) -> float:
        return self.counts.down(task)

    def _p_value(self, rounds: int) -> float:
        """Of the suite's loss, over rounds whose number no outcome has chosen."""
        strata = []
        for task in self.tasks:
            old_n = max(self.old_tape.get(task, 0), self.options.k0, rounds)
            old = sum(self.counts[INCUMBENT, task].rounds[:old_n])
            new = sum(self.counts[CANDIDATE, task].rounds[:rounds])
            strata.append((old, old_n, new, rounds))
        return exact_test(strata)

    def _moved(self, p_value: float) -> str:
        return (
            f"{self.counts.moved()}, where a skill that changes nothing would seem to lose as much "
            f"with probability {p_value:.2g}"
        )

    def _missing(self) -> str:
        """Samples that would show a loss of the size that was seen, if it is real."""
        loss = self.counts.mean(INCUMBENT) - self.counts.mean(CANDIDATE)
        means = [self.counts[arm, t].mean for t in self.tasks for arm in (INCUMBENT, CANDIDATE)]
        noise = math.fsum(mean * (1 - mean) for mean in means) / len(self.tasks) ** 2
        if loss <= 0 or not noise:
            return "more samples of every task"
        z = NormalDist().inv_cdf(1 - self.alpha / 2)
        rounds = math.ceil(noise * (z / loss) ** 2)
        samples = 2 * rounds * len(self.tasks)
        return f"about {samples} samples, {counted(rounds, 'round')} of both skills,"
