"""Statistics of samples: e-values and exact tests.

An e-value is at most 1 in expectation if nothing has changed, for any choice of the samples and any
stopping rule (Ramdas, Grünwald, Vovk, Shafer 2023, arXiv 2210.01948). So it may be tested after
every sample: by Ville's inequality it ever reaches ``1 / alpha`` with probability at most
``alpha``. All e-values are natural logarithms.

That of a task is ``E = sum over a < b of w_ab b^x (1-b)^(n-x) a^y (1-a)^(m-y) / max over p of
p^(x+y) (1-p)^(n+m-x-y)`` with ``w_ab`` proportional to ``b - a``, for ``x`` passes of ``n`` samples
of the better arm and ``y`` of ``m`` of the other: universal inference (Wasserman, Ramdas,
Balakrishnan 2020, PNAS, arXiv 1912.11436). For every common rate ``p`` the ratio to the likelihood
at ``p`` is a nonnegative martingale that starts at 1, and the larger denominator can only make it
smaller. The bound also holds for scores in [0, 1]: ``x -> (b/p)^x ((1-b)/(1-p))^(1-x)`` is convex,
so its expectation for a score of mean ``p`` is at most that for a pass of rate ``p``.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_RATES = (0.02, 0.10, 0.25, 0.50, 0.75, 0.90, 0.98)
_LEAST_CHANGE = 0.4
"""Smallest change of a rate in the mixture of ``log_e``: an edit to a skill changes a few tasks a
lot. The e-value hardly detects smaller changes; ``exact_test`` does."""

_CHANGES = [(a, b) for a in _RATES for b in _RATES if b - a >= _LEAST_CHANGE - 1e-9]
_TOTAL = sum(b - a for a, b in _CHANGES)
_BETS = [
    (math.log((b - a) / _TOTAL), math.log(b), math.log1p(-b), math.log(a), math.log1p(-a))
    for a, b in _CHANGES
]


@lru_cache(maxsize=1 << 17)
def log_e(better: float, better_n: int, worse: float, worse_n: int) -> float:
    """Return the log e-value that the first arm passes a task more often than the second.

    Args:
        better: sum of the first arm's passes or scores, in [0, better_n].
        better_n: number of its samples.
        worse: sum of the second arm's passes or scores, in [0, worse_n].
        worse_n: number of its samples.
    """
    passed = better + worse
    n = better_n + worse_n
    # Largest log likelihood under any one pass rate.
    common = sum(x * math.log(x / n) for x in (passed, n - passed) if x > 0)
    return _log_changed(better, better_n, worse, worse_n) - common


def _log_changed(better: float, better_n: int, worse: float, worse_n: int) -> float:
    """Return the log likelihood of the samples under the mixture of changes."""
    failed = better_n - better
    worse_failed = worse_n - worse
    terms = [
        weight + better * log_b + failed * log_not_b + worse * log_a + worse_failed * log_not_a
        for weight, log_b, log_not_b, log_a, log_not_a in _BETS
    ]
    top = max(terms)
    return top + math.log(sum(math.exp(term - top) for term in terms))


def chance_of(count: int, n: int, rate: float) -> float:
    """Return the probability of ``count`` or more among ``n`` that each occur at a rate in [0, 1].

    It is the p-value of the exact binomial test against a larger rate.
    """
    if rate in (0.0, 1.0):
        return float(rate == 1.0 or count == 0)
    total = 0.0
    ways = math.lgamma(n + 1)
    for k in range(count, n + 1):
        log_ways = ways - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        total += math.exp(log_ways + k * math.log(rate) + (n - k) * math.log1p(-rate))
    return total


WORDING = 0.4
"""Standard deviation of the accidents of wording, in log odds."""


class Stratum(NamedTuple):
    """Fresh samples of one task in a permutation test, as many of each arm."""

    weight: int
    """How much a change of this task counts, at least 1."""
    after: tuple[int, ...]
    """Values of the first arm's samples, at least 0."""
    before: tuple[int, ...]


def permutation_test(strata: Iterable[Stratum], wording: float = 0.0, scale: int = 1) -> float:
    """Return the one-sided p-value that the first arm does better, by permutation within tasks.

    If nothing has changed, every assignment of a task's samples to the arms is equally likely.
    ``T = sum over tasks of weight * sum of the first arm's values`` has a known distribution then,
    a convolution over the tasks, and ``p = P(T >= observed)`` is exact for any rates.

    Every text also moves every task a little by an accident of its wording: by ``N(0, wording^2)``
    in log odds. Two texts that say the same then differ by ``N(0, 2 wording^2 v^2)`` in the pass
    rate, with ``v`` the variance of a sample, which moves ``T`` by half of that for each of the
    ``n`` samples. The sum over the tasks is normal with the standard deviation ``t`` and is added:

        p = max(P(T >= observed), E[Phi((T - observed) / t)])

    So however many samples a task has, it is one piece of evidence beyond the accidents.

    Args:
        strata: the tasks.
        wording: standard deviation of the accidents, in log odds.
        scale: value of a sample that passed.

    Returns:
        In [0, 1], rounded to 12 digits: the last ones of ``erfc`` depend on the machine.
    """
    observed = 0
    low = 0
    accident = 0.0
    chances = [1.0]
    dropped = 0.0
    for weight, after, before in strata:
        n = len(after)
        values = tuple(sorted(after + before))
        observed += weight * sum(after)
        mean = (sum(values) + 0.5 * scale) / (len(values) + 1)
        variance = mean * (scale - mean) / scale
        accident += (weight * n * variance * wording) ** 2 / 2
        first, ways = _sums(values, n)
        low += weight * first
        chances = _convolve(chances, ways, weight)
        # Cut negligible ends; their mass is added to the p-value, which stays conservative.
        while chances[0] < _NEGLIGIBLE:
            dropped += chances.pop(0)
            low += 1
        while chances[-1] < _NEGLIGIBLE:
            dropped += chances.pop()
    place = observed - low
    exact = math.fsum(chances[max(0, place) :]) + dropped
    if not accident:
        return round(min(1.0, exact), 12)
    unit = math.sqrt(2 * accident)
    tails = (0.5 * math.erfc((place - sum_) / unit) for sum_ in range(len(chances)))
    smooth = math.fsum(map(mul, chances, tails)) + dropped
    return round(min(1.0, max(exact, smooth)), 12)


def exact_test(strata: Iterable[tuple[int, int, int, int]]) -> float:
    """Return the one-sided p-value that the first arm passes more often, with tasks as strata.

    The exact conditional (Cochran-Mantel-Haenszel) test: given the passes of a task under both
    arms together, the first arm's passes are hypergeometric if nothing has changed.

    Args:
        strata: passed and n of the first arm, passed and n of the second arm, for each task.
    """
    return permutation_test(
        Stratum(1, _outcomes(passed, n), _outcomes(other, other_n))
        for passed, n, other, other_n in strata
    )


def _outcomes(passed: int, n: int) -> tuple[int, ...]:
    return (1,) * passed + (0,) * (n - passed)


_NEGLIGIBLE = 1e-15


@lru_cache(maxsize=1 << 12)
def _sums(values: tuple[int, ...], n: int) -> tuple[int, tuple[float, ...]]:
    """Return the least sum of ``n`` of these values, and the probabilities of it and all above."""
    ways: list[Counter[int]] = [Counter({0: 1})] + [Counter() for _ in range(n)]
    for value, there in Counter(values).items():
        for size in range(n, 0, -1):
            for chosen in range(1, min(there, size) + 1):
                for total, count in ways[size - chosen].items():
                    ways[size][total + chosen * value] += count * math.comb(there, chosen)
    low = min(ways[n])
    high = max(ways[n])
    every = math.comb(len(values), n)
    return low, tuple(ways[n][total] / every for total in range(low, high + 1))


def _convolve(chances: list[float], ways: tuple[float, ...], step: int) -> list[float]:
    if len(ways) == 1:
        return chances
    out = [0.0] * (len(chances) + step * (len(ways) - 1))
    for i, weight in enumerate(ways):
        if weight:
            for j, mass in enumerate(chances, i * step):
                out[j] += weight * mass
    return out


_FLAKY = (0.25, 0.75)


def is_flaky(rate: float) -> bool:
    """Return whether a pass rate, in [0, 1], is far from 0 and from 1."""
    low, high = _FLAKY
    return low <= rate <= high


def agreement(rate: float, n: int) -> float:
    """Return the chance that ``n`` samples all pass or all fail, for a rate that is not certain.

    The rate is Beta(2 rate, 2 (1 - rate)), as if two samples were known of it.

    Args:
        rate: expected pass rate, in (0, 1).
        n: number of samples, at least 0; 1 is returned for fewer than two.
    """
    if n < 2:
        return 1.0
    passes = 2 * rate
    fails = 2 * (1 - rate)
    total = math.prod(2 + i for i in range(n))
    all_pass = math.prod(passes + i for i in range(n))
    all_fail = math.prod(fails + i for i in range(n))
    return (all_pass + all_fail) / total
