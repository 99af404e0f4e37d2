"""The gates of ``--skillopt-drift`` and ``--skillopt-check``."""

from __future__ import annotations

import math
from collections import Counter
from statistics import NormalDist
from typing import TYPE_CHECKING

from pytest_skillopt.compare.comparison import GO_ON
from pytest_skillopt.gate.data import ARMS, CANDIDATE, INCUMBENT, TAPE
from pytest_skillopt.gate.engine import SequentialGate, Unmeasured, Want, Wants
from pytest_skillopt.gate.statistics import exact_test
from pytest_skillopt.rates import interval, mean
from pytest_skillopt.words import plural

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from pytest_skillopt.gate.data import Decision, GateOptions, GateTask, Verdict
    from pytest_skillopt.gate.engine import Plan


class HelpsGate(SequentialGate):
    """Accept a skill (the candidate) that helps the agent without it (the incumbent).

    Both arms get ``most`` rounds of fresh samples of every task, at most twice, fewer if a cap pays
    for no more. After each time the exact stratified test is made at level ``alpha / looks``, so
    that a skill that changes nothing is accepted with at most the probability ``alpha``.
    ``rejected`` means that the skill hurts, or that no gain was shown; ``unmeasured`` that a cap
    left too few rounds to show either.
    """

    name = "helps"
    looks = 2
    _rounds = 0
    """Whole rounds that were taken."""

    def decide(self) -> Plan:
        self.sample_from(self.name)
        level = self.options.alpha / self.looks
        wanted = 0
        for _ in range(self.looks):
            wanted += self.options.most
            yield from self._sample_up_to(wanted)
            if not (known := self.counts.complete()):
                raise Unmeasured("a cap leaves no task with samples of both")
            now = self.counts.strata(known)
            moved = f"without and with the skill {self.counts.moved(known)}"
            better = exact_test(now)
            if better <= level:
                return self.verdict("accepted", f"it helps: {moved}, {_by_chance(better)}")
            worse = exact_test([(*counts[2:], *counts[:2]) for counts in now])
            if worse <= level:
                return self.verdict("rejected", f"it hurts: {moved}, {_by_chance(worse)}")
        most = max(0.0, 100 * highest_gain(now))
        if self._rounds < wanted:
            return self.verdict(
                "unmeasured",
                f"no gain is shown in {plural(self._rounds, 'round')}, and a cap leaves no more of "
                f"{wanted}: {moved}, {_by_chance(better)}",
            )
        return self.verdict(
            "rejected",
            f"no gain is shown: {moved}, {_by_chance(better)}; with 95 % confidence the skill "
            f"gains at most {most:.1f} points",
        )

    def _sample_up_to(self, rounds: int) -> Generator[Wants, None, None]:
        """Take whole rounds up to so many, or as many as a cap pays for."""
        size = 2 * len(self.tasks)
        while more := self.purse.affordable_rounds(size, rounds - self._rounds):
            self._rounds += more
            yield self.whole_rounds(more)


def _by_chance(p_value: float) -> str:
    return f"by chance with probability {p_value:.2g}"


def highest_gain(strata: Sequence[tuple[int, int, int, int]]) -> float:
    """Bound the gain of the mean pass rate from above, one-sided with 95 % confidence; in [-1, 1].

    The bound combines the Wilson intervals of both rates (MOVER; Zou, Huang, Zhang 2009,
    Computational Statistics & Data Analysis 53).

    Args:
        strata: passed and n with the skill, passed and n without it, for each task; n > 0.
    """
    new = [(passed, n) for passed, n, _, _ in strata]
    old = [(passed, n) for _, _, passed, n in strata]
    new_rate = mean(new)
    old_rate = mean(old)
    _, new_high = interval(new, 0.9)
    old_low, _ = interval(old, 0.9)
    return new_rate - old_rate + math.hypot(new_high - new_rate, old_rate - old_low)


class RegressionCheck(SequentialGate):
    """Check whether an edit (the candidate) is worse than what it changes (the incumbent).

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
    focus = 0.3
    """E-value from which a task looks broken enough to be sampled again."""

    def __init__(self, tasks: Sequence[GateTask], options: GateOptions | None = None) -> None:
        super().__init__(tasks, options)
        self._highest = -math.inf
        self._rounds = 0
        """Rounds of both versions that were taken."""
        self._paid = 0
        """The same with those of this round of sampling that the caps pay for."""
        self._passes: Counter[str] = Counter()
        """Passes of the candidate in its rounds, by task; without the samples that follow it up."""
        self._measured: Counter[str] = Counter()
        """Number of the samples in these rounds that were measured, by task."""

    def decide(self) -> Plan:
        p_value = 1.0
        for look in range(1, self.looks + 1):
            found = yield from self._sample_up_to(look * self.options.rollouts)
            if found:
                worse = self.counts.broken() or [max(self.tasks, key=self.counts.down)]
                return self._judge("rejected", f"worse on {self.counts.compared(worse)}")
            p_value = self._p_value(self._rounds)
            if p_value <= self.options.alpha / 2 / self.looks:
                return self._judge(
                    "rejected", f"the suite passes less often: {self._moved(p_value)}"
                )
            gap = self.counts.gap()
            if not gap and self._rounds < self.options.rollouts:
                gap = f"a cap leaves {plural(self._rounds, 'round')} of {self.options.rollouts}"
            if gap:
                # Without an e-value: a check that has not weighed its evidence fails.
                return self.verdict("unmeasured", f"{gap}: {self._moved(p_value)}")
            if p_value > self.doubt:
                return self._judge("accepted", f"nothing is credibly worse: {self._moved(p_value)}")
        doubt = f"looks worse, but may be chance: {self._moved(p_value)}; {self._missing()}"
        return self._judge("unmeasured", doubt)

    def _sample_up_to(self, rounds: int) -> Generator[Wants, None, bool]:
        """Take rounds up to so many, or as many as a cap pays for; return if a task broke."""
        first = self.options.rollouts
        while self._rounds < (paid := self._payable(rounds)):
            self._paid = paid
            # The first rounds of the earlier version are taken at once.
            more = self._more_of_base(max(self._rounds + 1, min(first, paid)))
            yield self._without_lost(more)
            self._rounds += 1
            yield from self._round_of_candidate()
            broke = yield from self._follow_suspicious()
            if broke:
                return True
        return False

    def _payable(self, rounds: int) -> int:
        """Return the number of rounds, at most this one, that a cap pays for, with those taken.

        Samples that errors have taken may be missing in the last one.
        """
        size = 2 * len(self.tasks)
        paid = self._rounds + self.purse.affordable_rounds(size, rounds - self._rounds)
        # Samples that followed up a task of the earlier version are of its later rounds.
        left = self.purse.affordable()
        left += min(left, self.counts.errors.total())
        while self._drawn and paid < rounds and self._lacking(paid + 1) <= left:
            paid += 1
        return paid

    def _without_lost(self, wants: list[Want]) -> list[Want]:
        """Return samples without as many as errors have taken from a cap."""
        least = len(wants) - self.counts.errors.total()
        return wants[: max(0, least, self.affordable(len(wants)))]

    def _lacking(self, rounds: int) -> int:
        """Return how many samples are still missing of so many rounds."""
        return len(self._more_of_base(rounds)) + len(self.tasks) * (rounds - self._rounds)

    def _more_of_base(self, length: int) -> list[Want]:
        """Return the samples of the earlier version that tasks lack of ``length``."""
        return [
            Want(INCUMBENT, task, TAPE)
            for task in self.tasks
            for _ in range(self.counts[INCUMBENT, task].n, length)
        ]

    def _round_of_candidate(self) -> Generator[Wants, None, None]:
        seen = {task: self.counts[CANDIDATE, task].n for task in self.tasks}
        wanted = [Want(CANDIDATE, task, TAPE) for task in self.tasks]
        yield self._without_lost(wanted)
        for task in self.tasks:
            new = self.counts[CANDIDATE, task].outcomes[seen[task] :]
            self._passes[task] += sum(new)
            self._measured[task] += len(new)

    def _evidence(self) -> float:
        """Return the log e-value that some task broke: its maximum over all rounds.

        Ville's inequality bounds the probability that this maximum exceeds a bound.
        """
        now = suite_log_e((self.counts.down(task) for task in self.tasks), len(self.tasks))
        self._highest = max(self._highest, now)
        return self._highest

    def _follow_suspicious(self) -> Generator[Wants, None, bool]:
        """Sample tasks that look broken, the worst first; return whether one credibly is.

        A cap pays for the rounds first.
        """
        least = math.log(self.focus)
        while self._evidence() < -math.log(self.options.alpha / 2):
            log_es = {task: self.counts.down(task) for task in self.tasks}
            suspicious = self.unfinished(task for task in self.tasks if log_es[task] >= least)
            suspicious.sort(key=log_es.__getitem__, reverse=True)
            lacking = self._lacking(max(self._paid, self.options.rollouts))
            left = self.affordable(2 * len(suspicious) + lacking) - lacking
            suspicious = suspicious[: max(0, left) // 2]
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
            old = self.counts[INCUMBENT, task].outcomes[:rounds]
            strata.append((sum(old), len(old), self._passes[task], self._measured[task]))
        return exact_test(strata)

    def _moved(self, p_value: float) -> str:
        known = self.counts.complete()
        moved = self.counts.moved(known)
        if self.counts.gain(known) >= 0:
            return moved
        return (
            f"{moved}; a skill that changes nothing would seem to lose as much "
            f"with probability {p_value:.2g}"
        )

    def _missing(self) -> str:
        """Describe how many samples would show a loss of the observed size, and how to get them."""
        most = self.looks * self.options.rollouts
        if self._rounds < most:
            return f"a cap leaves {plural(self._rounds, 'round')} of {most}; {GO_ON}"
        known = self.counts.complete()
        loss = -self.counts.gain(known) / len(known)
        means = [self.counts[arm, task].mean for task in known for arm in ARMS]
        noise = math.fsum(mean * (1 - mean) for mean in means) / len(known) ** 2
        if loss <= 0 or not noise:
            return "repeat the command with a higher --skillopt-rollouts"
        z = NormalDist().inv_cdf(1 - self.options.alpha / 2)
        rounds = math.ceil(noise * (z / loss) ** 2)
        samples = 2 * rounds * len(self.tasks)
        more = max(self.options.rollouts + 1, math.ceil(rounds / self.looks))
        return (
            f"about {samples} samples, {plural(rounds, 'round')} of both skills, would tell: "
            f"repeat the command with --skillopt-rollouts={more}"
        )


def suite_log_e(log_es: Iterable[float], n: int) -> float:
    """Return the log e-value ``prod(1 - 1/n + e/n)`` that some of ``n`` tasks changed.

    The product is over *all* tasks, also those with no sample of the candidate, whose factor is
    below 1: without them, factors would be chosen by their outcome.
    """
    return math.fsum(math.log1p(math.expm1(log_e) / n) for log_e in log_es)
