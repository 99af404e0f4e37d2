"""Statistics of samples: e-values, exact tests, interval and noise of a pass rate.

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
import statistics
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    passed, n = better + worse, better_n + worse_n
    # Largest log likelihood under any one pass rate.
    common = sum(x * math.log(x / n) for x in (passed, n - passed) if x > 0)
    return _log_changed(better, better_n, worse, worse_n) - common


def _log_changed(better: float, better_n: int, worse: float, worse_n: int) -> float:
    """Return the log likelihood of the samples under the mixture of changes."""
    failed, worse_failed = better_n - better, worse_n - worse
    terms = [
        weight + better * log_b + failed * log_not_b + worse * log_a + worse_failed * log_not_a
        for weight, log_b, log_not_b, log_a, log_not_a in _BETS
    ]
    top = max(terms)
    return top + math.log(sum(math.exp(term - top) for term in terms))


def log_bayes_factor(better: float, better_n: int, worse: float, worse_n: int) -> float:
    """Return the log Bayes factor of "the first arm passes more often" against "both alike".

    The mixture of changes is that of ``log_e``; the denominator is the mean likelihood of a common
    rate, not the largest. It needs fewer samples than ``log_e`` and gives no guarantee, so it is
    only for findings that are tested again. The arguments are those of ``log_e``.
    """
    passed, n = better + worse, better_n + worse_n
    alike = statistics.fmean(rate**passed * (1 - rate) ** (n - passed) for rate in _COMMON_RATES)
    return _log_changed(better, better_n, worse, worse_n) - math.log(alike)


_COMMON_RATES = (0.1, 0.3, 0.5, 0.7, 0.9)


def exact_test(strata: Sequence[tuple[int, int, int, int]], *, mid: bool = False) -> float:
    """Return the one-sided p-value that the first arm passes more often, with tasks as strata.

    The exact conditional (Cochran-Mantel-Haenszel) test: given the passes of a task under both
    arms together, the first arm's passes are hypergeometric if nothing has changed, and the
    distribution of their sum over the tasks is a convolution.

    Args:
        strata: passed and n of the first arm, passed and n of the second arm, for each task.
        mid: count only half of the probability of the observed sum (Lancaster 1961): with few
            samples the test is then close to its level, but not conservative.
    """
    observed, sums, dropped = 0, [1.0], 0.0
    low = 0
    for passed, n, other_passed, other_n in strata:
        observed += passed
        first, weights = _hypergeometric(n, other_n, passed + other_passed)
        low += first
        sums = _convolve(sums, weights)
        # Cut negligible ends; their mass is added to the p-value, which stays conservative.
        while sums[0] < _NEGLIGIBLE:
            dropped += sums.pop(0)
            low += 1
        while sums[-1] < _NEGLIGIBLE:
            dropped += sums.pop()
    place = observed - low
    half = 0.5 * sums[place] if mid and 0 <= place < len(sums) else 0.0
    return min(1.0, math.fsum(sums[max(0, place) :]) - half + dropped)


def combined_test(parts: Iterable[tuple[float, Sequence[tuple[int, int, int, int]]]]) -> float:
    """Return the one-sided p-value of several groups of tasks together.

    The weighted sum of the normal scores of each group's mid-p value (Stouffer 1949, Liptak 1958).
    So a few tasks that are expected to change are not hidden by the noise of many others.

    Args:
        parts: weight of each group, positive, and its strata as for ``exact_test``. A group
            without tasks is left out.

    Returns:
        In [0, 1]; 1 without any task.
    """
    found = [(weight, exact_test(strata, mid=True)) for weight, strata in parts if strata]
    if not found:
        return 1.0
    score = sum(weight * _NORMAL.inv_cdf(min(max(1 - p, _TINY), 1 - _TINY)) for weight, p in found)
    return 1 - _NORMAL.cdf(score / math.hypot(*(weight for weight, _ in found)))


_NORMAL = NormalDist()
_TINY, _NEGLIGIBLE = 1e-12, 1e-15


@lru_cache(maxsize=1 << 12)
def _hypergeometric(n: int, other_n: int, passed: int) -> tuple[int, tuple[float, ...]]:
    """Return the smallest possible count and the probabilities of it and all larger ones."""
    low, high = max(0, passed - other_n), min(n, passed)
    ways = math.comb(n + other_n, passed)
    counts = range(low, high + 1)
    return low, tuple(math.comb(n, x) * math.comb(other_n, passed - x) / ways for x in counts)


def _convolve(sums: list[float], weights: tuple[float, ...]) -> list[float]:
    if len(weights) == 1:
        return sums
    out = [0.0] * (len(sums) + len(weights) - 1)
    for i, weight in enumerate(weights):
        for j, mass in enumerate(sums, i):
            out[j] += weight * mass
    return out


def pass_hat_k(passed: int, n: int, k: int) -> float:
    """Estimate without bias the probability that ``k`` samples of a task all pass (pass^k).

    It is the share of the subsets of ``k`` in [1, n] samples that passed as a whole (Yao, Shinn,
    Razavi, Narasimhan 2024, tau-bench, arXiv 2406.12045).
    """
    return math.comb(passed, k) / math.comb(n, k)


def interval(counts: Sequence[tuple[float, int]], confidence: float = 0.95) -> tuple[float, float]:
    """Return a confidence interval of the suite's pass rate, with the tasks as given.

    Wilson's score interval for a stratified mean (Yan and Su 2010, doi:10.1198/sbr.2009.0067) in
    the form of an effective sample size (Korn and Graubard 1998): the size at which a simple
    proportion would have the variance of the suite mean. With one sample for each task
    this variance cannot be estimated, and the binomial variance, which is never smaller
    (Hoeffding 1956), is used.

    Args:
        counts: passes, or summed scores in [0, 1], and samples of each task.
        confidence: nominal coverage, in (0, 1).

    Returns:
        Low and high end, in [0, 1]; (0, 1) if nothing was measured.
    """
    measured = [(passed, n) for passed, n in counts if n]
    if not measured:
        return 0.0, 1.0
    rate = math.fsum(passed / n for passed, n in measured) / len(measured)
    shares = math.fsum(1 / n for _, n in measured) / len(measured) ** 2
    pooled = rate * (1 - rate)
    size = (pooled / _variance(measured, _CAUTION) if pooled else 1.0) / shares
    z = _NORMAL.inv_cdf((1 + confidence) / 2)
    middle = (rate + z * z / (2 * size)) / (1 + z * z / size)
    half = z / (1 + z * z / size) * math.sqrt(pooled / size + (z / (2 * size)) ** 2)
    return max(0.0, middle - half), min(1.0, middle + half)


_CAUTION = 3
"""Weight of the pooled variance in samples: the smallest integer with which 95 % intervals
cover 94 % from 10 tasks of 2 samples on, in the simulations of ``benchmarks/gate.py``."""


def _variance(counts: Sequence[tuple[float, int]], pooled_weight: int) -> float:
    """Return the variance of one sample within its task, as a mean over the tasks.

    The unbiased estimate, with the binomial variance of the pooled rate as ``pooled_weight``
    further observations: the latter is the only term if every task has one sample.
    """
    rate = math.fsum(passed / n for passed, n in counts) / len(counts)
    within = math.fsum(passed * (n - passed) / n for passed, n in counts)
    freedom = sum(n - 1 for _, n in counts)
    return (within + pooled_weight * rate * (1 - rate)) / (freedom + pooled_weight)


def noise_floor(counts: Sequence[tuple[float, int]], rollouts: int) -> float:
    """Return the standard deviation of the difference of two evaluations of one skill.

    Args:
        counts: passes and samples of each task, as measured.
        rollouts: samples for each task in an evaluation, at least 1.

    Returns:
        Difference of pass rates, in [0, 1]; 0 if nothing was measured.
    """
    measured = [(passed, n) for passed, n in counts if n]
    if not measured:
        return 0.0
    return math.sqrt(2 * _variance(measured, 1) / (rollouts * len(measured)))
