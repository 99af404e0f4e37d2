"""How strongly samples speak for a change: e-values for one task and for a suite, an exact test.

An e-value is a number that is at most 1 on average when nothing has changed, however the samples
were chosen and whenever one stops to look (Ramdas, Grünwald, Vovk, Shafer 2023, arXiv 2210.01948).
So it may be looked at after every sample, and by Ville's inequality it ever reaches ``1 / alpha``
with probability at most ``alpha``.

All evidence is kept as natural logarithms.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_RATES = (0.02, 0.10, 0.25, 0.50, 0.75, 0.90, 0.98)
_LEAST_CHANGE = 0.4
"""An edit to a skill turns a few tasks, it does not shift many by a little: that is what is bet on.
Changes below this are nearly invisible to the e-value, and a matter for ``exact_test``."""

_CHANGES = [(a, b) for a in _RATES for b in _RATES if b - a >= _LEAST_CHANGE - 1e-9]
_COMMON_RATES = (0.1, 0.3, 0.5, 0.7, 0.9)
_TOTAL = sum(b - a for a, b in _CHANGES)
_BETS = [
    (math.log((b - a) / _TOTAL), math.log(b), math.log1p(-b), math.log(a), math.log1p(-a))
    for a, b in _CHANGES
]


@lru_cache(maxsize=1 << 17)
def log_e(better: float, better_n: int, worse: float, worse_n: int) -> float:
    """Log e-value that the first arm passes a task more often than the second.

    The likelihood of a mixture of changes "rate ``a`` to rate ``b``", weighted by ``b - a``, over
    the largest likelihood that any one common rate can give the same samples: universal inference
    (Wasserman, Ramdas, Balakrishnan 2020, PNAS, arXiv 1912.11436). For every common rate ``p`` the
    ratio to the likelihood at ``p`` is a nonnegative martingale that starts at 1, and the larger
    denominator can only make it smaller.

    The bound holds for scores in [0, 1] as it does for passes: ``x -> (b/p)^x ((1-b)/(1-p))^(1-x)``
    is convex, so a score of mean ``p`` has at most the expectation that a pass of rate ``p`` has.

    Args:
        better: sum of the first arm's passes or scores, in [0, better_n].
        better_n: its samples.
        worse: the same of the second arm.
        worse_n: its samples.
    """
    failed, worse_failed = better_n - better, worse_n - worse
    terms = [
        weight + better * log_b + failed * log_not_b + worse * log_a + worse_failed * log_not_a
        for weight, log_b, log_not_b, log_a, log_not_a in _BETS
    ]
    top = max(terms)
    likelihood = top + math.log(sum(math.exp(term - top) for term in terms))
    return likelihood - _best_common(better + worse, better_n + worse_n)


def log_bayes_factor(better: float, better_n: int, worse: float, worse_n: int) -> float:
    """Log Bayes factor of "the first arm passes more often" against "both pass alike".

    The same mixture of changes as in ``log_e``, over the mean likelihood of a common rate instead
    of the largest. It gives no guarantee, and says sooner which of the two is likelier: for what is
    tested again before anything rests on it. The arguments are those of ``log_e``.
    """
    failed, worse_failed = better_n - better, worse_n - worse
    changed = math.fsum(
        math.exp(
            weight + better * log_b + failed * log_not_b + worse * log_a + worse_failed * log_not_a
        )
        for weight, log_b, log_not_b, log_a, log_not_a in _BETS
    )
    passed, n = better + worse, better_n + worse_n
    alike = math.fsum(rate**passed * (1 - rate) ** (n - passed) for rate in _COMMON_RATES)
    return math.log(changed * len(_COMMON_RATES) / alike)


def _best_common(passed: float, n: int) -> float:
    """Largest log likelihood of ``passed`` of ``n`` under any one pass rate."""
    failed = n - passed
    of_passed = passed * math.log(passed / n) if passed > 0 else 0.0
    of_failed = failed * math.log(failed / n) if failed > 0 else 0.0
    return of_passed + of_failed


def suite_log_e(log_es: Iterable[float], n: int) -> float:
    """Log e-value that some task of ``n`` changed: each task stakes the n-th part of its capital.

    ``prod(1 - 1/n + e/n)`` over *all* tasks, also those with no sample of the candidate, whose
    factor is below 1: leaving them out would be choosing factors by their outcome.
    """
    return math.fsum(math.log1p(math.expm1(log_e) / n) for log_e in log_es)


def exact_test(strata: Sequence[tuple[int, int, int, int]]) -> float:
    """One-sided p-value that the first arm passes more often, tasks being strata.

    The exact conditional (Cochran-Mantel-Haenszel) test: given how often a task passed under both
    arms together, the first arm's passes are hypergeometric when nothing has changed, and the sum
    over the tasks is a convolution.

    Args:
        strata: passed and n of the first arm, passed and n of the second arm, a task each.
    """
    observed, sums, dropped = 0, [1.0], 0.0
    low = 0
    for passed, n, other_passed, other_n in strata:
        observed += passed
        first, weights = _hypergeometric(n, other_n, passed + other_passed)
        low += first
        sums = _convolve(sums, weights)
        # Ends that can no longer matter go; their mass stays in the p-value, on the safe side.
        while sums[0] < _NEGLIGIBLE:
            dropped += sums.pop(0)
            low += 1
        while sums[-1] < _NEGLIGIBLE:
            dropped += sums.pop()
    return min(1.0, math.fsum(sums[max(0, observed - low) :]) + dropped)


_NEGLIGIBLE = 1e-15


@lru_cache(maxsize=1 << 12)
def _hypergeometric(n: int, other_n: int, passed: int) -> tuple[int, tuple[float, ...]]:
    """Smallest possible count and the probabilities from there on."""
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
