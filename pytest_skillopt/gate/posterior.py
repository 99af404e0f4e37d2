"""The posterior of a comparison: the probability that the suite's pass rate rose.

Task i passes with rate ``p_i`` under the incumbent and ``q_i`` under the candidate. There are three
hypotheses about the whole edit:

* ``N``, nothing: ``q_i = p_i`` for all i.
* ``E(s, l)``, an edit: a task moves up with probability ``l``, down with probability
  ``d = min(DOWN, l DOWN_SHARE)`` if it does not move up (a third of it for a target), and else
  shifts in common with the others: ``q = p (1 + s)`` if ``s < 0``, ``q = p + s (1 - p)`` if
  ``s >= 0``.
* ``M(s, l)``, memorised: as ``E``, but no held-out task moves up.

Prior: ``P(N) = NOTHING_PRIOR``, ``P(M | not N) = MEMORISED_PRIOR``, ``s`` from ``SHIFTS``, ``l``
from ``LIFTED``. The rates ``p_i`` lie on the grid ``RATES``; their distribution starts from
``SHARES`` and is fitted to the samples of both arms together (empirical Bayes). A task that moves
goes to a rate ``r`` beyond its own with probability proportional to ``|r - p_i|``.

The search names *targets*, train tasks on which it expects a change, from samples that are not
weighed here. A task that moves up is named with probability ``a = NAMED``, another one with
``b = MISNAMED``. So the odds ``l / (1 - l)`` of moving up are multiplied by ``a / b`` for a target
and by ``(1 - a) / (1 - b)`` for another train task, and ``k`` targets among ``n`` train tasks have
the likelihood ``(l a + (1 - l) b)^k (l (1 - a) + (1 - l) (1 - b))^(n - k)``.

Given a hypothesis the tasks are independent, and the net effect ``D = sum(q_i - p_i)`` is taken as
normal with the sums of their posterior means and variances:

* ``P(rise) = sum over h in E, M of P(h | samples) P(D > 0 | h, samples)``; ``N`` adds nothing.
* ``B = P(samples | E or M) / P(samples | N)`` is the evidence of a change.

Source of the weights: recorded edits of real agents, their random splits, and simulated edits that
help train tasks only or some tasks at the cost of others (``benchmarks/gate.py``,
docs/decisions/gate.md).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_skillopt.gate.data import CANDIDATE, INCUMBENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.gate.counts import Counts
    from pytest_skillopt.gate.data import GateOptions, Seen

RATES = (0.02, 0.10, 0.25, 0.42, 0.58, 0.75, 0.90, 0.98)
SHARES: tuple[float, ...] = (0.15, 0.12, 0.09, 0.08, 0.08, 0.10, 0.16, 0.22)
"""Prior share of the tasks by rate: most tasks of agents nearly always pass or fail."""
SHARES_WEIGHT, STEPS = 8.0, 8
"""Weight of ``SHARES`` in tasks, and steps of the fit to the suite's own samples."""
SHIFTS = {
    -0.20: 0.03,
    -0.13: 0.065,
    -0.08: 0.08,
    -0.04: 0.06,
    0.0: 0.665,
    0.05: 0.05,
    0.12: 0.035,
    0.22: 0.015,
}
"""Prior of the common shift ``s``: a longer skill more often harms all tasks than it helps them."""
LIFTED = {0.05: 0.30, 0.15: 0.30, 0.35: 0.25, 0.70: 0.15}
"""Prior of the share ``l`` of tasks that move up."""
DOWN, DOWN_SHARE = 0.05, 1 / 3
"""Largest probability ``d`` of moving down, and its ratio to ``l`` below that: one move in four of
the recorded edits is down."""
NAMED, MISNAMED = 0.5, 0.1
"""Probability that a train task is a target if it moves up, and if it does not."""
NOTHING_PRIOR, MEMORISED_PRIOR = 0.30, 0.10
"""Prior probability of ``N``, and of ``M`` among the rest."""
_KINDS = (math.log1p(-MEMORISED_PRIOR), math.log(MEMORISED_PRIOR))
"""Log priors of ``E`` and ``M`` given that it is one of them."""

Role = Literal["target", "train", "held_out", "memorised", "any"]
"""Role of a task: a target, another train task, held out from the search (under ``E`` and under
``M``), or any task of a comparison without targets."""
_UNSHIFTED = list(SHIFTS).index(0.0)
_HYPOTHESES = [(s, lifted) for s in range(len(SHIFTS)) for lifted in LIFTED]
_ODDS: dict[Role, float] = {
    "target": NAMED / MISNAMED,
    "train": (1 - NAMED) / (1 - MISNAMED),
    "held_out": 1.0,
    "memorised": 0.0,
    "any": 1.0,
}
"""Factor on the odds of moving up, by role."""


def shifted(rate: float, shift: float) -> float:
    """Return a rate in [0, 1] after a common shift in [-1, 1]."""
    return rate * (1 + shift) if shift < 0 else rate + (1 - rate) * shift


@lru_cache(maxsize=1 << 14)
def _components(
    after: float, after_n: int, before: float, before_n: int
) -> list[list[tuple[float, ...]]]:
    """Return moments of a task if it shifts by each of ``SHIFTS``, rises and falls.

    These are the likelihood ``L``, ``L (q - p)`` and ``L (q - p)^2``, by ``p``, summed over ``q``.
    """

    def moments(
        old: float, changed: Iterable[tuple[float, float]], rate: float
    ) -> tuple[float, float, float]:
        total = mean = square = 0.0
        for weight, new in changed:
            part = weight * old * (new**after * (1 - new) ** (after_n - after))
            change = new - rate
            total += part
            mean += part * change
            square += part * change * change
        return total, mean, square

    def beyond(rate: float, sign: int) -> list[tuple[float, float]]:
        rates = [other for other in RATES if (other - rate) * sign > 0]
        distance = math.fsum(abs(other - rate) for other in rates)
        return [(abs(other - rate) / distance, other) for other in rates] or [(1.0, rate)]

    columns = []
    for rate in RATES:
        old = rate**before * (1 - rate) ** (before_n - before)
        kinds = [[(1.0, shifted(rate, shift))] for shift in SHIFTS]
        kinds += [beyond(rate, 1), beyond(rate, -1)]
        columns.append([moments(old, kind, rate) for kind in kinds])
    return [[*zip(*kind, strict=True)] for kind in zip(*columns, strict=True)]


def fitted_shares(counts: Sequence[tuple[float, int]]) -> tuple[float, ...]:
    """Fit the share of the tasks that have each of ``RATES``, by expectation maximisation.

    Args:
        counts: passes and samples of each task, of both arms together.

    Returns:
        Shares in the order of ``RATES``; their sum is 1.
    """
    likelihoods = [
        ([rate**passed * (1 - rate) ** (n - passed) for rate in RATES], tasks)
        for (passed, n), tasks in Counter(counts).items()
        if n
    ]
    shares = SHARES
    for _ in range(STEPS):
        sums = [SHARES_WEIGHT * share for share in SHARES]
        for row, tasks in likelihoods:
            parts = [*map(mul, shares, row)]
            total = sum(parts) / tasks
            sums = [known + part / total for known, part in zip(sums, parts, strict=True)]
        total = sum(sums)
        shares = tuple(value / total for value in sums)
    return shares


class _Hypotheses(NamedTuple):
    """A task, or a sum over tasks, under each of ``_HYPOTHESES``, and under ``N``."""

    logs: Sequence[float]
    """Log likelihoods."""
    means: Sequence[float]
    """Expected change of its rate."""
    variances: Sequence[float]
    log_nothing: float

    def score(self, weights: Sequence[float]) -> float:
        """Return expectation over standard deviation of ``D`` for weighted hypotheses."""
        total = sum(weights) or 1.0
        mean: float = sum(map(mul, weights, self.means)) / total
        square = sum(
            w * (v + m * m) for w, m, v in zip(weights, self.means, self.variances, strict=True)
        )
        return mean / math.sqrt(max(_TINY, square / total - mean**2))


def _sum(tasks: Sequence[_Hypotheses]) -> _Hypotheses:
    def add(columns: Iterable[Sequence[float]]) -> list[float]:
        return [sum(column) for column in zip(*columns, strict=True)] or [0.0] * len(_HYPOTHESES)

    return _Hypotheses(
        add(task.logs for task in tasks),
        add(task.means for task in tasks),
        add(task.variances for task in tasks),
        math.fsum(task.log_nothing for task in tasks),
    )


@lru_cache
def _moves(role: Role) -> list[tuple[int, float, float, float]]:
    """Return shift and probabilities to shift, rise and fall under each of ``_HYPOTHESES``."""
    moves = []
    for s, lifted in _HYPOTHESES:
        odds = _ODDS[role] * lifted / (1 - lifted)
        rises = odds / (1 + odds)
        down = min(DOWN, lifted * DOWN_SHARE)
        falls = (1 - rises) * (down / 3 if role == "target" else down)
        moves.append((s, 1 - rises - falls, rises, falls))
    return moves


@lru_cache(maxsize=1 << 14)
def _task(
    role: Role,
    shares: tuple[float, ...],
    after: float,
    after_n: int,
    before: float,
    before_n: int,
) -> _Hypotheses:
    *shifts, up, fallen = (
        [sum(map(mul, shares, part)) for part in kind]
        for kind in _components(after, after_n, before, before_n)
    )
    logs, means, variances = [], [], []
    for s, shift, rises, falls in _moves(role):
        moments = shifts[s]
        total = shift * moments[0] + rises * up[0] + falls * fallen[0]
        mean = shift * moments[1] + rises * up[1] + falls * fallen[1]
        square = shift * moments[2] + rises * up[2] + falls * fallen[2]
        change = mean / total
        logs.append(math.log(total))
        # Without samples of both arms a rise counts as nothing: missing evidence is never a yes.
        means.append(change if after_n and before_n else min(0.0, change))
        variances.append(max(0.0, square / total - change**2))
    return _Hypotheses(logs, means, variances, math.log(shifts[_UNSHIFTED][0]))


@dataclass(frozen=True, slots=True)
class Weighed:
    """The posterior in the figures that a decision needs."""

    chance: float
    """``P(rise)``, in [0, 1]."""
    memorised: float
    """``P(M | E or M, samples)``, in [0, 1]."""
    log_bayes: float
    """Log of ``B``."""
    mean: float
    """Expectation of ``D`` given ``E`` or ``M``, in tasks."""
    deviation: float
    """Standard deviation of ``D`` given ``E`` or ``M``, in tasks."""
    common: float
    """Part of the variance of ``D`` that is between hypotheses, in [0, 1]."""
    held_out: float
    """Expectation of ``D`` on the held-out tasks under ``E``, over its standard deviation."""
    doubt: dict[str, float]
    """Variance of the change of each task given ``E`` or ``M``, over one plus its samples."""


def weigh(counts: Counts, options: GateOptions) -> Weighed:
    """Weigh the samples of the tasks that count, and those that the options name as seen."""
    expected = frozenset(options.targets)
    unknown = frozenset(options.held_out) - expected
    earlier = {one.task: one for one in options.seen}
    sums = {task: _sums(counts, task, earlier.get(task)) for task in counts.tasks}
    shares = fitted_shares([(new + old, new_n + old_n) for new, new_n, old, old_n in sums.values()])
    known: dict[str, _Hypotheses] = {}
    for task, samples in sums.items():
        role: Role = "target" if task in expected else "train" if expected else "any"
        known[task] = _task("held_out" if task in unknown else role, shares, *samples)
    held = [task for task in sums if task in unknown]
    train = [task for task in sums if task not in unknown]
    prior = _log_priors(len(train), sum(task in expected for task in train))
    of_train = _sum([known[task] for task in train])
    rests = [
        _sum([known[task] for task in held]),
        _sum([_task("memorised", shares, *sums[task]) for task in held]),
    ]
    edit = math.log1p(-NOTHING_PRIOR)
    logs = [
        [edit + of_kind + sum(part) for part in zip(prior, of_train.logs, rest.logs, strict=True)]
        for of_kind, rest in zip(_KINDS, rests, strict=True)
    ]
    nothing = math.fsum(row.log_nothing for row in known.values()) + math.log(NOTHING_PRIOR)
    top = max(*logs[0], *logs[1], nothing)
    weights = [[math.exp(log - top) for log in kind] for kind in logs]
    of_edit = sum(weights[0]) + sum(weights[1])
    rises = mean = square = within = 0.0
    for kind, rest in zip(weights, rests, strict=True):
        for k, weight in enumerate(kind):
            moved = of_train.means[k] + rest.means[k]
            variance = of_train.variances[k] + rest.variances[k] + _TINY
            # Probability that a normal variable is positive.
            rises += weight * 0.5 * math.erfc(-moved / math.sqrt(2 * variance))
            mean += weight / of_edit * moved
            square += weight / of_edit * moved**2
            within += weight / of_edit * variance
    between = max(0.0, square - mean**2)
    both = [general + memorised for general, memorised in zip(*weights, strict=True)]
    return Weighed(
        chance=rises / (of_edit + math.exp(nothing - top)),
        memorised=sum(weights[1]) / of_edit,
        log_bayes=math.log(of_edit) + top - edit - (nothing - math.log(NOTHING_PRIOR)),
        mean=mean,
        deviation=math.sqrt(between + within),
        common=between / (between + within),
        held_out=rests[0].score(weights[0]),
        doubt={
            task: sum(map(mul, both, row.variances)) / of_edit / (1 + counts[CANDIDATE, task].n)
            for task, row in known.items()
        },
    )


def _sums(counts: Counts, task: str, seen: Seen | None) -> tuple[float, int, float, int]:
    """Return passes and samples under the candidate, then under the incumbent."""
    new, old = counts[CANDIDATE, task], counts[INCUMBENT, task]
    if not seen or not new.n or not old.n:
        return new.total, new.n, old.total, old.n
    return (
        new.total + seen.candidate_passed,
        new.n + seen.candidate_n,
        old.total + seen.incumbent_passed,
        old.n + seen.incumbent_n,
    )


@lru_cache
def _log_priors(train: int, named: int) -> list[float]:
    """Return the log priors of ``_HYPOTHESES`` given the numbers of train tasks and of targets."""
    logs = []
    shifts = list(SHIFTS.values())
    for s, lifted in _HYPOTHESES:
        log = math.log(shifts[s] * LIFTED[lifted])
        if named:
            log += named * math.log(lifted * NAMED + (1 - lifted) * MISNAMED)
            other = lifted * (1 - NAMED) + (1 - lifted) * (1 - MISNAMED)
            log += (train - named) * math.log(other)
        logs.append(log)
    top = max(logs)
    total = top + math.log(sum(math.exp(log - top) for log in logs))
    return [log - total for log in logs]


_TINY = 1e-9
"""Smallest variance, so that no division by zero occurs."""


def leverage(counts: Counts, task: str) -> float:
    """Return the information of another pair of samples on ``s < 0``, over one plus ``n``.

    It is largest for reliable tasks: the Fisher information is ``p^2 / (2 p (1 - p))``; 0.02 is
    added to the variance to bound it.
    """
    new, old = counts[CANDIDATE, task], counts[INCUMBENT, task]
    rate = (new.total + old.total + 0.5) / (new.n + old.n + 1)
    information: float = rate**2 / (2 * rate * (1 - rate) + 0.02)
    return information / (1 + new.n)


def noise(counts: Counts, task: str) -> float:
    """Return the decrease of the variance of the observed sum by another pair of samples.

    It is ``2 p (1 - p) (1 / n - 1 / (n + 1))``, with a pass and a failure added to ``p``.
    """
    new, old = counts[CANDIDATE, task], counts[INCUMBENT, task]
    rate = (new.total + old.total + 1) / (new.n + old.n + 2)
    return 2 * rate * (1 - rate) / (max(1, new.n) * (new.n + 1))
