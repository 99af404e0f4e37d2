"""The gain that a report tells, estimated from all samples of a training.

Fresh samples of a candidate that was accepted look better than it is, since luck has helped to
accept it. The model of the search, which has learned them too, allows for that, and is a little too
careful: so the estimate has three parts of it and one of the fresh samples. A task that the model
knows nothing of has the mean of its own fresh samples and of the gain of the others.

The weights were chosen on 66 trainings of simulated worlds that wrote a skill
(``benchmarks/learning.py``, seeds 400 to 404). In 113 others, of twelve kinds of worlds (seeds from
47000, caps of 150 and 350), told and true gains were .307 and .280 in the mean, and .96 of the
intervals had the true one; gains below 20 points were told as .15 where .12 were true.
"""

from __future__ import annotations

import math
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, NamedTuple

from pytest_skillopt.gate.statistics import WORDING
from pytest_skillopt.rates import interval
from pytest_skillopt.run.result import GainRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_skillopt.rollouts.rollout import Rollout
    from pytest_skillopt.tasks.task import SkillTask

_HALF, _FRESH = 0.5, 0.25
"""Weights of the fresh samples of tasks that the search has not sampled, and of all of them."""
_NORMAL = NormalDist()
_POWER = 0.8
"""Part of the comparisons in which a gain has to show."""
_LEAST_GAIN, _ROOM = 0.02, 2.0
"""Least gain for which needs are named; and its square over that of the accidents of wording."""
_USUAL_NOISE = 0.4
"""Variance of the difference of a pair of a task that passes with 0.6 and 0.8."""
_MODEL = 0.3
"""Half the width of the 95 % interval of a gain by the model."""
_Counts = dict[str, tuple[int, int]]
"""Passed and measured rollouts by task."""


class Belief(NamedTuple):
    """Expected pass rates of a task without and with the edits."""

    before: float
    after: float


def estimate_gain(
    suite: Sequence[SkillTask],
    believed: Mapping[str, Belief],
    before: Mapping[str, Sequence[Rollout]],
    after: Mapping[str, Sequence[Rollout]],
) -> GainRow | None:
    """Estimate the pass rate of all tasks of train and val without and with the edits.

    Args:
        suite: these tasks.
        believed: what the search expects of its tasks, by all samples; empty if it has no model.
        before: fresh samples of the old skill by task.
        after: those of the new one.

    Returns:
        None if no task was measured under both.
    """
    old = _counts(before)
    new = _counts(after)
    pairs = [task.id for task in suite if task.id in old and task.id in new]
    if not pairs:
        return None
    known = [believed[task.id] for task in suite if task.id in believed]
    others = [task.id for task in suite if task.id not in believed]
    start = fmean([one.before for one in known] or [_mean(old, pairs)])
    gain = fmean([one.after - one.before for one in known] or [_moved(old, new, pairs)])
    if known and others:
        seen = [task for task in others if task in pairs]
        fresh = _HALF * (_moved(old, new, seen) - gain) if seen else 0.0
        first = _mean(old, seen) if seen else start
        share = len(others) / len(suite)
        start = start + share * (first - start)
        gain = gain + share * fresh
    half = _half_width(old, new, pairs)
    if known:
        start += _FRESH * (_mean(old, pairs) - start)
        gain += _FRESH * (_moved(old, new, pairs) - gain)
        half = 1 / math.hypot(1 / half, 1 / _MODEL)
    end = min(1.0, max(0.0, start + gain))
    gain = end - start
    low = max(-start, gain - half)
    high = min(1.0 - start, gain + half)
    fresh_pairs = sum(min(old[task][1], new[task][1]) for task in pairs)
    return GainRow(
        before=start,
        after=end,
        low=low,
        high=high,
        tasks=len(suite),
        fresh=len(pairs),
        pairs=fresh_pairs,
        is_model=bool(known),
    )


def tasks_needed(gain: GainRow, level: float) -> int:
    """Return the tasks with which accidents of wording leave room to see a gain of this size.

    Args:
        gain: the estimate.
        level: p-value that the verdict asks for, in (0, 0.5].

    Returns:
        At least 1; 0 if the gain is below two points, which nobody could pay for.
    """
    if gain.gain < _LEAST_GAIN:
        return 0
    return math.ceil(_ROOM * (_errors(level) * _accident(gain)) ** 2 / gain.gain**2)


def pairs_needed(gain: GainRow, level: float) -> int:
    """Return the fresh pairs that show a gain of this size in four of five comparisons.

    Args:
        gain: the estimate, on at least ``tasks_needed`` tasks.
        level: p-value that the verdict asks for, in (0, 0.5].

    Returns:
        The number of pairs; 0 if the gain is below two points.
    """
    if gain.gain < _LEAST_GAIN:
        return 0
    errors = _errors(level) ** 2
    left = gain.gain**2 - errors * _accident(gain) ** 2 / gain.tasks
    return math.ceil(errors * _noise(gain) / left)


def smallest_gain(pairs: int, level: float) -> float:
    """Return the gain that so many fresh pairs show in four of five comparisons, in [0, 1].

    Args:
        pairs: fresh samples of each version, at least 1.
        level: p-value that the verdict asks for, in (0, 0.5].
    """
    return min(1.0, _errors(level) * math.sqrt(_USUAL_NOISE / pairs))


def _errors(level: float) -> float:
    """Return how many standard errors a gain has to be."""
    return _NORMAL.inv_cdf(1 - level) + _NORMAL.inv_cdf(_POWER)


def _noise(gain: GainRow) -> float:
    """Return the variance of the difference of a pair."""
    return gain.before * (1 - gain.before) + gain.after * (1 - gain.after)


def _accident(gain: GainRow) -> float:
    """Return the standard deviation of the accidents of wording of one task's difference."""
    return math.sqrt(2) * WORDING * _noise(gain) / 2


def _counts(rollouts: Mapping[str, Sequence[Rollout]]) -> _Counts:
    found = {}
    for task, taken in rollouts.items():
        measured = [rollout for rollout in taken if rollout.measured]
        if measured:
            found[task] = sum(rollout.passed for rollout in measured), len(measured)
    return found


def _mean(counts: _Counts, tasks: Iterable[str]) -> float:
    return fmean(counts[task][0] / counts[task][1] for task in tasks)


def _moved(old: _Counts, new: _Counts, tasks: Sequence[str]) -> float:
    return _mean(new, tasks) - _mean(old, tasks)


def _half_width(old: _Counts, new: _Counts, tasks: Sequence[str]) -> float:
    """Return half the width of a 95 % interval of the gain, from the fresh samples only.

    It combines the intervals of both rates (Newcombe 1998, doi:10.1002/sim.779).
    """
    old_low, old_high = interval([old[task] for task in tasks])
    new_low, new_high = interval([new[task] for task in tasks])
    return math.hypot(old_high - old_low, new_high - new_low) / 2
