"""Worlds whose kind and size are drawn from their seed too, and suites of even effects.

Nobody sets parameters on one of them: a seed draws the number of tasks, their pass rates, how many
conventions there are, what each is worth and to whom, and how good the optimizer is.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, NamedTuple

from worlds.world import Kind, Mix

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

UNSPLIT = 20
"""Tasks up to which a suite is not split."""
_VAL = 0.4
"""Share of the val tasks of larger suites."""
_EVEN = Mix(0.4, 0.05, 0.05)
_NONE = (0.0, 0.0)


class Drawn(NamedTuple):
    """A kind of world, and the tasks that its training is given."""

    kind: Kind
    tasks: int

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of train and val tasks; a suite that is not split has no val task of its own."""
        if self.tasks <= UNSPLIT:
            return self.tasks, 0
        val = round(_VAL * self.tasks)
        return self.tasks - val, val


def _random(luck: random.Random) -> Drawn:
    """Draw a world: lines for one group of tasks or for all, some only together."""
    tasks = _draw_size(luck)
    low = sorted((luck.uniform(0.03, 0.7), luck.uniform(0.03, 0.7)))
    lift = sorted((luck.uniform(0.15, 0.8), luck.uniform(0.15, 0.8)))
    general = luck.random() < 0.4
    kind = Kind(
        _draw_mix(luck),
        rules=luck.randint(1, 3) if general else luck.randint(2, 6),
        needy=0.0 if general else luck.uniform(0.4, 1.0),
        low=(low[0], low[1]),
        lift=(lift[0], lift[1]),
        two=luck.uniform(0.0, 0.6),
        together=luck.random() < 0.5,
        flaky=(low[0], low[1]) if general else (0.3, 1.0),
        everywhere=luck.uniform(0.15, 0.5) if general else 0.0,
    )
    return Drawn(kind, tasks)


def _graded(luck: random.Random) -> Drawn:
    """Draw a world in which each line brings its share to every task."""
    low = sorted((luck.uniform(0.1, 0.6), luck.uniform(0.1, 0.6)))
    kind = Kind(
        _draw_mix(luck),
        rules=luck.randint(2, 5),
        needy=0.0,
        lift=_NONE,
        flaky=(low[0], low[1]),
        everywhere=luck.uniform(0.06, 0.2),
    )
    return Drawn(kind, _draw_size(luck))


def _nothing(luck: random.Random) -> Drawn:
    """Draw a world in which no line helps."""
    low = sorted((luck.uniform(0.05, 0.95), luck.uniform(0.05, 0.95)))
    mix = Mix(0.0, luck.uniform(0.0, 0.2), luck.uniform(0.0, 0.1))
    return Drawn(Kind(mix, rules=0, needy=0.0, flaky=(low[0], low[1])), _draw_size(luck))


def _even(tasks: int, points: float, rules: int = 1) -> Callable[[random.Random], Drawn]:
    """Make worlds in which each of some lines lifts every task by so much."""
    kind = Kind(_EVEN, rules=rules, needy=0.0, flaky=(0.45, 0.65), everywhere=points)
    return lambda luck: Drawn(kind, tasks)


def _small(tasks: int) -> Callable[[random.Random], Drawn]:
    """Make suites of tasks that are broken or sound, each broken one mended by one line."""
    kind = Kind(Mix(0.45, 0.05, 0.05), rules=max(2, tasks // 3), two=0.0, flaky=(0.9, 1.0))
    return lambda luck: Drawn(kind, tasks)


DRAWN: Mapping[str, Callable[[random.Random], Drawn]] = {
    "random": _random,
    "graded": _graded,
    "nothing": _nothing,
    "ten": lambda luck: Drawn(
        Kind(_EVEN, rules=3, needy=0.0, flaky=(0.6, 0.6), everywhere=0.12), 10
    ),
    "even8": _even(8, 0.22),
    "even15": _even(15, 0.2),
    "even40": _even(40, 0.2),
    "small8": _small(8),
    "small15": _small(15),
}


def draw(name: str, seed: int) -> Drawn:
    """Draw the kind and the size of a world."""
    return DRAWN[name](random.Random(f"{name}/{seed}/kind"))


def _draw_size(luck: random.Random) -> int:
    """Draw a number of tasks from 6 to 70, small ones as often as large ones."""
    return round(math.exp(luck.uniform(math.log(6), math.log(70))))


def _draw_mix(luck: random.Random) -> Mix:
    return Mix(luck.uniform(0.12, 0.6), luck.uniform(0.0, 0.2), luck.uniform(0.0, 0.1))
