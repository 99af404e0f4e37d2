"""The gates of ``--skillopt-drift`` and ``--skillopt-check``.

``DriftGate`` tells whether a skill still helps, is no longer needed, or hurts. The incumbent is the
agent without the skill, the candidate the agent with it. With ``w`` and ``n``
the suite's pass rates with and without the skill, each look tests three null hypotheses:

* *still helps* rejects ``w <= n``, and *hurts* rejects ``w >= n``, by the exact stratified test of
  ``--skillopt-check``;
* *no longer needed* rejects ``w - n >= (w' - n') / 2``, in which ``w'`` and ``n'`` are the rates of
  an earlier model that the skill helped. Its one-sided bound combines the Wilson intervals of the
  four rates (MOVER; Zou, Huang, Zhang 2009, Computational Statistics & Data Analysis 53).

*Still helps* is tested at ``alpha / 2``, as a loss is by ``--skillopt-check``, and both alarms at
``alpha / 10`` each, because a monthly job has many chances of a false one; all in equal parts at
each look. So a false alarm has at most the probability ``alpha / 5``, 1 % by default; for *no
longer needed* that is approximate, as its intervals are, and measured by ``benchmarks/drift.py``.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from pytest_skillopt.addons.receipts import DECISIONS
from pytest_skillopt.gate.counts import counted
from pytest_skillopt.gate.data import ARMS, CANDIDATE, INCUMBENT, TAPE
from pytest_skillopt.gate.engine import SequentialGate, Want, Wants
from pytest_skillopt.gate.statistics import exact_test, interval

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from pytest_skillopt.addons.receipts import Counts, Word
    from pytest_skillopt.gate.data import Decision, GateOptions, GateTask, Verdict
    from pytest_skillopt.gate.engine import Plan

SHARE = 0.5
"""Share of its earlier gain that a skill may lose before it can be called no longer needed."""


class DriftGate(SequentialGate):
    """Sample both arms alike, ``most`` rounds a look, until one of the verdicts is credible.

    Args:
        then: counts of the earlier model by task; without those of every task that counts,
            *no longer needed* is never said.
    """

    name = "drift"
    looks = 2

    def __init__(self, *args: Any, then: Mapping[str, Counts] = {}, **options: Any) -> None:
        super().__init__(*args, **options)
        self.then = then
        self.word: Word | None = None
        """The verdict; None as long as the samples are not complete."""

    def decide(self) -> Plan:
        self.sample_from("drift")
        for _ in range(self.looks):
            yield self.whole_rounds(self.options.most)
            word, why = self._look(self.alpha / self.looks)
            if word != "cannot tell":
                break
        self.word = word
        return self.verdict(
            DECISIONS[word], f"without and with the skill {self.counts.moved()}, {why}"
        )

    def _look(self, alpha: float) -> tuple[Word, str]:
        now = self.counts.strata(self.tasks)
        worse = exact_test([(*counts[2:], *counts[:2]) for counts in now])
        better = exact_test(now)
        if worse <= alpha / 10:
            return "hurts", f"by chance with probability {worse:.2g}"
        if better <= alpha / 2:
            return "still helps", f"by chance with probability {better:.2g}"
        if not all(task in self.then for task in self.tasks):
            return "cannot tell", "and no earlier model was helped on the same tasks"
        then = [self.then[task] for task in self.tasks]
        most = highest_left(now, then, alpha / 10)
        if most < 0:
            return "no longer needed", f"credibly less than half of the {_points(then)} of before"
        return "cannot tell", f"after {_points(then)} before: more tasks would tell"


def gain(counts: Sequence[Counts]) -> float:
    """Return the mean over tasks of the pass rate with the skill minus that without, in [-1, 1]."""
    return math.fsum(a / n - b / m for a, n, b, m in counts) / len(counts)


def _points(counts: Sequence[Counts]) -> str:
    return f"{100 * gain(counts):+.1f} points"


def highest_left(now: Sequence[Counts], then: Sequence[Counts], level: float) -> float:
    """Bound ``gain(now) - SHARE * gain(then)`` from above, one-sided at ``level`` in (0, 0.5)."""
    slack = 0.0
    for weight, counts in ((1.0, now), (-SHARE, then)):
        for sign, arm in ((1, [row[:2] for row in counts]), (-1, [row[2:] for row in counts])):
            rate = math.fsum(passed / n for passed, n in arm) / len(arm)
            low, high = interval(arm, 1 - 2 * level)
            slack += (weight * ((high if weight * sign > 0 else low) - rate)) ** 2
    return gain(now) - SHARE * gain(then) + math.sqrt(slack)


class RegressionCheck(SequentialGate):
    """Check whether an edit (the candidate) is worse than the baseline (the incumbent).

    ``rejected`` means worse: some task credibly broke, or the whole suite passes less often by an
    exact test. ``unmeasured`` means that it looks worse, but the samples are not enough to tell.
    ``accepted`` means that neither was seen; it does not prove equality.

    An edit that changes nothing is called worse with probability at most ``alpha``: half of it for
    the evidence on tasks, which is valid after every round, half for the two looks of the test. A
    fixed task does not compensate for a broken one.
    """

    name = "check"
    looks = 2
    doubt = 0.2
    """P-value of the suite's loss up to which the verdict is not "not worse"."""

    def __init__(
        self,
        tasks: Sequence[GateTask],
        options: GateOptions | None = None,
        *,
        drawn: Mapping[str, int] = {},
    ) -> None:
        """Open the check; ``drawn`` is the number of earlier samples of the baseline, by task."""
        super().__init__(tasks, options)
        self._drawn_before = drawn
        self._highest = -math.inf

    def decide(self) -> Plan:
        p_value = 1.0
        for look in range(1, self.looks + 1):
            for rounds in range((look - 1) * self.options.kc, look * self.options.kc):
                yield self._more_of_baseline(max(rounds + 1, self.options.k0))
                short = [t for t in self.tasks if len(self.counts[CANDIDATE, t].rounds) <= rounds]
                yield [Want(CANDIDATE, task, TAPE) for task in short]
                found = yield from self._follow_suspicious()
                if found:
                    worse = self.counts.broken() or [max(self.tasks, key=self.counts.down)]
                    return self._judge("rejected", f"worse on {self.counts.compared(worse)}")
            p_value = self._p_value(look * self.options.kc)
            if p_value <= self.alpha / 2 / self.looks:
                return self._judge(
                    "rejected", f"the suite passes less often: {self._moved(p_value)}"
                )
            if p_value > self.doubt:
                return self._judge("accepted", f"nothing is credibly worse: {self._moved(p_value)}")
        return self._judge(
            "unmeasured",
            f"looks worse, but may be chance: {self._moved(p_value)}; {self._missing()} would tell",
        )

    def _more_of_baseline(self, length: int) -> list[Want]:
        """Return the baseline samples that tasks lack of ``length``, or of their earlier number."""
        return [
            Want(INCUMBENT, task, TAPE)
            for task in self.tasks
            for _ in range(
                self.counts[INCUMBENT, task].n, max(self._drawn_before.get(task, 0), length)
            )
        ]

    def _evidence(self) -> float:
        """Return the log e-value that some task broke: its maximum over all rounds.

        Ville's inequality bounds the probability that this maximum exceeds a bound.
        """
        now = suite_log_e((self.counts.down(task) for task in self.tasks), len(self.tasks))
        self._highest = max(self._highest, now)
        return self._highest

    def _follow_suspicious(self) -> Generator[Wants, None, bool]:
        """Sample tasks that look broken, the worst first; return whether one credibly is."""
        least = math.log(self.options.focus)
        while self._evidence() < -math.log(self.alpha / 2):
            log_es = {task: self.counts.down(task) for task in self.tasks}
            suspicious = self.unfinished(task for task in self.tasks if log_es[task] >= least)
            suspicious.sort(key=log_es.__getitem__, reverse=True)
            if not suspicious:
                return False
            yield self.again(suspicious)
        return True

    def _judge(self, decision: Decision, reason: str) -> Verdict:
        return self.verdict(decision, reason, log_e=self._evidence())

    def _p_value(self, rounds: int) -> float:
        """Return the p-value of the suite's loss over a predetermined number of rounds."""
        strata = []
        for task in self.tasks:
            old_n = max(self._drawn_before.get(task, 0), self.options.k0, rounds)
            old = sum(self.counts[INCUMBENT, task].rounds[:old_n])
            new = sum(self.counts[CANDIDATE, task].rounds[:rounds])
            strata.append((old, old_n, new, rounds))
        return exact_test(strata)

    def _moved(self, p_value: float) -> str:
        return (
            f"{self.counts.moved()}; a skill that changes nothing would seem to lose as much "
            f"with probability {p_value:.2g}"
        )

    def _missing(self) -> str:
        """Describe how many samples would show a loss of the observed size, if it is real."""
        loss = self.counts.mean(INCUMBENT) - self.counts.mean(CANDIDATE)
        means = [self.counts[arm, t].mean for t in self.tasks for arm in ARMS]
        noise = math.fsum(mean * (1 - mean) for mean in means) / len(self.tasks) ** 2
        if loss <= 0 or not noise:
            return "more samples of every task"
        z = NormalDist().inv_cdf(1 - self.alpha / 2)
        rounds = math.ceil(noise * (z / loss) ** 2)
        samples = 2 * rounds * len(self.tasks)
        return f"about {samples} samples, {counted(rounds, 'round')} of both skills,"


def suite_log_e(log_es: Iterable[float], n: int) -> float:
    """Return the log e-value ``prod(1 - 1/n + e/n)`` that some of ``n`` tasks changed.

    The product is over *all* tasks, also those with no sample of the candidate, whose factor is
    below 1: without them, factors would be chosen by their outcome.
    """
    return math.fsum(math.log1p(math.expm1(log_e) / n) for log_e in log_es)
