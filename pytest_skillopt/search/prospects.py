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
LIKELY = 0.5
"""Probability that an idea helps above which it probably does."""
_USELESS = 0.1
"""The same below which it counts as useless."""
_PAYS, _PAYS_CAPPED = 0.02, 0.002
"""Rise of the pass rate that has to be expected of these rollouts: without a cap, and under one,
which says what the user will spend."""


class Prospects(NamedTuple):
    """The expected finds of ``AHEAD`` further rollouts."""

    chance: float
    """Chance, in (0, 1], of an idea that helps."""
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

    As many ideas are decided by a rollout as so far. If none of the last ``n`` has helped, none of
    the next ``m`` does with the probability ``(n + 1) / (n + m + 1)`` (Laplace's rule of
    succession); those that probably help do so with that of the model. The gain is that of a kept
    idea, at most a quarter of what is left.

    Args:
        model: that of the search.
        samples: number of samples with each idea in the document.
        rollouts: number of all rollouts so far.
    """
    state, good = model.state, model.good
    kept = [idea for idea, one in state.items() if one == "kept"]
    others = [idea for idea in state if idea not in kept and samples[idea]]
    useless = [idea for idea in others if good(idea) < _USELESS]
    late = sum(idea > max(kept, default=-1) for idea in useless)
    decided = AHEAD * (len(kept) + len(useless)) / max(1, rollouts)
    none = (late + 1) / (late + 1 + max(1.0, decided))
    none *= math.prod(1 - good(idea) for idea in others if good(idea) > LIKELY)
    room = (1 - model.mean_rate(model.kept)) / 4
    gains = [max(0.0, float(model.lift_beside_kept(idea).mean())) for idea in kept]
    return Prospects(1 - none, min(room, sum(gains) / len(gains) if gains else room))


def rollouts_to_the_end(ahead: Prospects, least: float) -> float:
    """Return the rollouts until the expected rise has fallen to ``least``, if nothing is found.

    By the rule of ``prospects`` the chance falls as ``1 / (1 / chance + t / AHEAD)`` in ``t``
    rollouts.
    """
    return AHEAD * max(0.0, ahead.gain / least - 1 / ahead.chance)
