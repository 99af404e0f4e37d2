"""The posterior of two versions of a skill: how the pass rate of each task differs.

Task i passes under the incumbent with rate ``p_i`` and under the candidate with rate ``q_i``:

    logit(p_i) = b_i,    logit(q_i) = b_i + s_i + c,    all on the lattice ``RATES``

``b_i`` comes from a distribution that all tasks have in common, and so does the task's own shift
``s_i``. Both are learned from the suite's samples by expectation maximisation (empirical Bayes);
``SHIFTS`` is what is known of the shifts before: three tasks of four do not move. ``c`` is a shift
of all tasks alike, with the prior ``COMMON``: a longer skill more often harms all tasks a little
than it helps them, which is what a few samples of each task hide best.

The net effect ``D = sum(q_i - p_i)`` is normal given ``c``, with the sums of the tasks' posterior
means and variances:

    P(rise) = sum over c of P(c | samples) P(D > 0 | c, samples)

An accident of wording (``gate/statistics.py``) adds its variance to that of ``D``. A task without
samples of both versions may add a fall to ``D`` and no rise: missing evidence is never a yes.

The weights were chosen on recorded edits of agents and simulated ones (docs/decisions/gate.md).
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from pytest_skillopt.gate.statistics import WORDING

if TYPE_CHECKING:
    from collections.abc import Sequence

STEP = 0.4
"""Distance of two neighbours of the lattice in log odds."""
RATES = tuple(1 / (1 + math.exp(-STEP * k)) for k in range(-10, 11))
"""Lattice of pass rates, from .018 to .982."""
SHIFTS = {
    -10: 0.015,
    -5: 0.03,
    -3: 0.04,
    -1: 0.04,
    0: 0.75,
    1: 0.04,
    3: 0.04,
    5: 0.03,
    10: 0.015,
}
"""Prior of a task's shift, in steps of the lattice."""
SHIFTS_WEIGHT, RATES_WEIGHT = 10.0, 2.0
"""Weights of ``SHIFTS`` and of the even distribution of rates, in tasks."""
COMMON = {0: 0.70, -1: 0.13, -2: 0.07, 1: 0.07, 2: 0.03}
"""Prior of the common shift ``c``, in steps of the lattice."""
ROUNDS = 2
"""Rounds of the expectation maximisation."""


class Pair(NamedTuple):
    """Samples of a task under both versions: sums of passes or scores, and numbers."""

    before: float = 0.0
    before_n: int = 0
    after: float = 0.0
    after_n: int = 0

    @property
    def variance(self) -> float:
        """Estimated variance of one sample, ``p (1 - p)`` with half a pass and half a failure."""
        rate = (self.before + self.after + 0.5) / (self.before_n + self.after_n + 1)
        return rate * (1 - rate)

    @property
    def is_complete(self) -> bool:
        return bool(self.before_n and self.after_n)

    @property
    def change(self) -> float:
        """Change of the observed mean; 0 if one version was not sampled."""
        return self.after / self.after_n - self.before / self.before_n if self.is_complete else 0.0


class Lift(NamedTuple):
    """Expected change of a task's pass rate, in [-1, 1]."""

    mean: float
    variance: float
    up: float
    """Expectation of the change where it is a rise, of 0 elsewhere."""


@lru_cache(maxsize=1 << 14)
def _likelihood(passed: float, n: int) -> tuple[float, ...]:
    return tuple(rate**passed * (1 - rate) ** (n - passed) for rate in RATES)


@lru_cache
def _places(shift: int) -> list[int]:
    """Return where each rate of the lattice lies after a shift; its ends are not left."""
    last = len(RATES) - 1
    return [min(last, max(0, place + shift)) for place in range(len(RATES))]


@lru_cache
def _changes(shift: int) -> list[float]:
    return [RATES[after] - rate for rate, after in zip(RATES, _places(shift), strict=True)]


@lru_cache(maxsize=1 << 14)
def _shifted(passed: float, n: int, common: int) -> list[list[float]]:
    """Return the likelihood of a candidate's samples, by the task's shift and the rate before."""
    likelihood = _likelihood(passed, n)
    return [_moved(likelihood, shift + common) for shift in SHIFTS]


def _moved(likelihood: Sequence[float], shift: int) -> list[float]:
    """Return the likelihood of each rate of the lattice after a shift."""
    return [likelihood[place] for place in _places(shift)]


class Posterior:
    """The posterior given one common shift.

    Args:
        pairs: the samples of each task.
        common: the common shift, in steps of the lattice.
    """

    def __init__(self, pairs: Sequence[Pair], common: int = 0) -> None:
        self.common = common
        self._rates = [1 / len(RATES)] * len(RATES)
        self._shifts = list(SHIFTS.values())
        self._lifts: dict[Pair, Lift] = {}
        tasks = Counter(pairs)
        for _ in range(ROUNDS):
            self._learn(tasks)

    def log_likelihood(self, pairs: Sequence[Pair], *, moved: bool = True) -> float:
        """Return the log likelihood of tasks; without ``moved``, if none of them shifts."""
        still = list(SHIFTS).index(0)
        total = 0.0
        for pair, tasks in Counter(pairs).items():
            before, after = self._likelihoods(pair)
            likelihoods = [sum(map(mul, before, row)) for row in after]
            likelihood = sum(map(mul, self._shifts, likelihoods)) if moved else likelihoods[still]
            total += tasks * math.log(likelihood)
        return total

    def lift(self, pair: Pair) -> Lift:
        """Return the expected change of a task with these samples."""
        if pair not in self._lifts:
            self._lifts[pair] = self._lift(pair)
        return self._lifts[pair]

    def _lift(self, pair: Pair) -> Lift:
        before, after = self._likelihoods(pair)
        total = mean = square = up = 0.0
        for shift, weight, row in zip(SHIFTS, self._shifts, after, strict=True):
            changes = _changes(shift + self.common)
            cells = list(map(mul, before, row))
            moved = list(map(mul, cells, changes))
            change = weight * sum(moved)
            total += weight * sum(cells)
            mean += change
            square += weight * sum(map(mul, moved, changes))
            up += max(0.0, change)
        mean = mean / total
        square = square / total
        up = up / total
        return Lift(mean, max(0.0, square - mean * mean), up)

    def predict(self, pair: Pair) -> tuple[float, float]:
        """Return P(pass) under the incumbent, and under a candidate that lowers no task."""
        before, after = self._likelihoods(pair)
        total = rate = change = 0.0
        for shift, weight, row in zip(SHIFTS, self._shifts, after, strict=True):
            cells = list(map(mul, before, row))
            total += weight * sum(cells)
            rate += weight * sum(map(mul, cells, RATES))
            if shift > 0:
                change += weight * sum(map(mul, cells, _changes(shift)))
        return rate / total, (rate + change) / total

    def _likelihoods(self, pair: Pair) -> tuple[list[float], list[list[float]]]:
        """Return probabilities of a task's samples by the rate before.

        These are the joint ones of the rate and the incumbent's samples, and for each shift those
        of the candidate's samples given the rate.
        """
        before = list(map(mul, self._rates, _likelihood(pair.before, pair.before_n)))
        return before, _shifted(pair.after, pair.after_n, self.common)

    def _learn(self, tasks: Counter[Pair]) -> None:
        """Fit the distributions of rates and shifts to the tasks once."""
        rates = [RATES_WEIGHT / len(RATES)] * len(RATES)
        shifts = [SHIFTS_WEIGHT * weight for weight in SHIFTS.values()]
        for pair, count in tasks.items():
            before, after = self._likelihoods(pair)
            likelihoods = [sum(map(mul, before, row)) for row in after]
            of_shift = list(map(mul, self._shifts, likelihoods))
            of_rate = [sum(map(mul, self._shifts, column)) for column in zip(*after, strict=True)]
            part = count / sum(of_shift)
            shifts = [old + part * new for old, new in zip(shifts, of_shift, strict=True)]
            joint = map(mul, before, of_rate)
            rates = [old + part * new for old, new in zip(rates, joint, strict=True)]
        self._rates = [weight / sum(rates) for weight in rates]
        self._shifts = [weight / sum(shifts) for weight in shifts]


def chance_of_rise(pairs: Sequence[Pair]) -> float:
    """Return ``P(rise)``, in [0, 1], from the samples of each task that counts."""
    accident = math.fsum(2 * (WORDING * pair.variance) ** 2 for pair in pairs)
    logs = []
    chances = []
    for common, prior in COMMON.items():
        posterior = Posterior(pairs, common)
        lifts = [posterior.lift(pair) for pair in pairs]
        rises = [
            lift.mean if pair.is_complete else min(0.0, lift.mean)
            for pair, lift in zip(pairs, lifts, strict=True)
        ]
        variance = accident + math.fsum(lift.variance for lift in lifts)
        score = math.fsum(rises) / math.sqrt(2 * max(variance, 1e-12))
        logs.append(math.log(prior) + posterior.log_likelihood(pairs))
        chances.append(0.5 * math.erfc(-score))
    top = max(logs)
    weights = [math.exp(log - top) for log in logs]
    return math.fsum(map(mul, weights, chances)) / math.fsum(weights)


def chance_memorised(train: Sequence[Pair], val: Sequence[Pair], prior: float) -> float:
    """Return the probability that no val task has moved although train tasks did, in [0, 1].

    Against it stands that val tasks move as train tasks do, whose shifts are learned; ``prior`` is
    the probability before any val task is sampled.
    """
    learned = Posterior(train)
    gain = learned.log_likelihood(val) - learned.log_likelihood(val, moved=False)
    odds = prior / (1 - prior) * math.exp(min(700.0, -gain))
    return odds / (1 + odds)
