"""Figures of pass rates: pass^k, interval and noise. No decision depends on them."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def mean(counts: Sequence[tuple[float, int]]) -> float:
    """Return the mean over the tasks of passed / n, in [0, 1]; n > 0."""
    return math.fsum(passed / n for passed, n in counts) / len(counts)


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
    rate = mean(measured)
    shares = math.fsum(1 / n for _, n in measured) / len(measured) ** 2
    pooled = rate * (1 - rate)
    size = (pooled / _variance(measured, _CAUTION) if pooled else 1.0) / shares
    z = NormalDist().inv_cdf((1 + confidence) / 2)
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
    rate = mean(counts)
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
