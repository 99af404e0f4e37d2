"""The expected finds of further rollouts, by which a search ends."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt.search.choices import Idea
    from pytest_skillopt.search.model import Model

AHEAD = 100
"""Further rollouts that the prospects are about."""
_USELESS = 0.1
"""Probability that an idea helps below which it counts as useless."""
_OF_OPEN, _OF_NEW = 0.55, 0.3
"""Part of what the open ideas are expected to bring that ``AHEAD`` rollouts find, and the part of
what is left to gain that a new idea brings."""
_USUAL_GAIN = 0.09
"""Rise of the pass rate by one find."""
_HALVED = 200
"""Rollouts without a find that halve the expected rise."""
_PAYS, _PAYS_CAPPED = 0.02, 0.002
"""Rise of the pass rate that has to be expected of these rollouts: without a cap, and under one,
which says what the user will spend."""


class Prospects(NamedTuple):
    """The expected finds of ``AHEAD`` further rollouts."""

    chance: float
    """Chance, in [0, 1], of an idea that helps."""
    gain: float
    """Rise of the suite's pass rate by it, in [0, 1]."""

    @property
    def rise(self) -> float:
        return self.chance * self.gain


def least_rise(*, capped: bool) -> float:
    """Return the expected rise below which more rollouts do not pay."""
    return _PAYS_CAPPED if capped else _PAYS


def prospects(model: Model, samples: Mapping[Idea, int], rollouts: int) -> Prospects:
    """Return what ``AHEAD`` further rollouts are expected to find.

    They find a part of what the model expects of the open ideas, and a new idea that brings a part
    of what is left. As many ideas are decided by a rollout as so far; if none of the last ``n`` has
    helped, one of the next ``m`` does with the probability ``m / (n + m + 1)`` (Laplace's rule of
    succession). Finds come by chance, each worth the same, so the chance of one is that of a
    Poisson distribution.

    The parts and the worth were fitted to 84 trainings of fourteen worlds (seeds from 21000). In 56
    others (seeds from 25000) the mean squared error of the chance was .20, that of the best
    constant .24 (``docs/decisions/one-posterior.md``).

    Args:
        model: that of the search.
        samples: number of samples with each idea in the document.
        rollouts: number of all rollouts so far.
    """
    room = 1 - model.mean_rate(model.kept)
    opened = math.fsum(
        model.good(idea) * max(0.0, float(model.lift_beside_kept(idea).mean()))
        for idea, state in model.state.items()
        if state == "open"
    )
    new = _chance_of_new(model, samples, rollouts)
    rise = _OF_OPEN * min(opened, room / 2) + _OF_NEW * new * room
    chance = -math.expm1(-rise / _USUAL_GAIN)
    gain = min(room, rise / chance) if chance else 0.0
    return Prospects(chance, gain)


def _chance_of_new(model: Model, samples: Mapping[Idea, int], rollouts: int) -> float:
    """Return the chance of a new idea that helps."""
    kept = [idea for idea, state in model.state.items() if state == "kept"]
    others = [idea for idea in model.state if idea not in kept and samples[idea]]
    useless = [idea for idea in others if model.good(idea) < _USELESS]
    late = sum(idea > max(kept, default=-1) for idea in useless)
    decided = max(1.0, AHEAD * (len(kept) + len(useless)) / max(1, rollouts))
    return decided / (late + 1 + decided)


def rollouts_to_the_end(ahead: Prospects, least: float) -> float:
    """Return the rollouts until the expected rise has fallen to ``least``, if nothing is found.

    It is halved by about ``_HALVED`` of them.
    """
    return _HALVED * math.log2(max(1.0, ahead.rise / least))
