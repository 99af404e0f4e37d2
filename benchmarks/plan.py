"""Rollouts of a training without a cap, beside their forecasts.

    python benchmarks/plan.py                             ten worlds, three seeds; five minutes
    python benchmarks/plan.py --cap 350 --first 700

The forecasts are those of the plan, and those that a terminal shows after half and three quarters
of the rollouts.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from learning import world_of
from worlds.proposer import Proposer
from worlds.target import WorldExecutor
from worlds.world import SKILL

from pytest_skillopt.mode import mode_named
from pytest_skillopt.modes.forecast import forecast
from pytest_skillopt.report.live import FINAL, SEARCH, Progress
from pytest_skillopt.rollouts.sampler import MemoryLedger, Sampler
from pytest_skillopt.search.history import Observer
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from pytest_skillopt.rollouts.rollout import Rollout

WORLDS = "ten,small8,even8,small15,even15,graded,random,nothing,noisy,mature"
MOMENTS = {"plan": 0.0, "half": 0.5, "three quarters": 0.75}
THIRD = 1 / 3


class _Forecasts(Observer):
    """Keeps what a terminal would forecast after each rollout."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.told = [progress.expected]

    def expects(self, more: float) -> None:
        self._progress.expect(round(more))
        self.told[-1] = self._progress.expected

    def compares(self, edits: int, e_value: float, most: int) -> None:
        self._progress.begin(FINAL)

    def take(self) -> None:
        self._progress.count(passed=True, error=False)
        self.told.append(self._progress.expected)


class _Counted(MemoryLedger):
    """Measurements by key, each of which is told when it is taken."""

    def __init__(self, forecasts: _Forecasts) -> None:
        super().__init__()
        self._forecasts = forecasts

    def put(self, rollout: Rollout) -> None:
        super().put(rollout)
        self._forecasts.take()


def train(case: tuple[str, int, int]) -> tuple[str, int, list[float], int, int]:
    """Train once: world, rollouts taken, forecasts over them, calls of the optimizer, forecast."""
    name, seed, cap = case
    world = world_of(name, seed)
    settings = Settings(seed=seed, optimizer_workers=1, max_rollouts=cap)
    tasks = [dataclasses.replace(task) for task in world.tasks]
    bounds = forecast(tasks, mode_named("train"), settings)
    forecasts = _Forecasts(Progress(SEARCH, expected=bounds.typical, most=bounds.most))
    sampler = Sampler(WorldExecutor(world), tasks, _Counted(forecasts), settings=settings)
    proposer = Proposer(world.kind, seed)
    start = Version.from_bytes(world.start.encode())
    Trainer(start, tasks, sampler, proposer, settings, skill=SKILL, observer=forecasts).run()
    taken = sampler.taken
    shares = [forecasts.told[int(part * taken)] / taken for part in MOMENTS.values()]
    return name, taken, shares, proposer.calls, bounds.typical_calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--worlds", default=WORLDS)
    parser.add_argument("--cap", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    worlds = args.worlds.split(",")
    seeds = range(args.first, args.first + args.seeds)
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(train, itertools.product(worlds, seeds, [args.cap])))
    print(f"{'world':10} {'rollouts':>22}  forecast over them: {', '.join(MOMENTS)}")
    middles = []
    for world in worlds:
        rows = [row for row in found if row[0] == world]
        taken = sorted(row[1] for row in rows)
        told = [[row[2][place] for row in rows] for place in range(len(MOMENTS))]
        middles.append(list(map(statistics.median, told)))
        shown = "  ".join(f"{middle:.2f}" for middle in middles[-1])
        print(f"{world:10} {statistics.median(taken):8.0f} {taken[0]:6} {taken[-1]:6}  {shown}")
    for place, moment in enumerate(MOMENTS):
        shares = [row[2][place] for row in found]
        near = statistics.fmean(abs(share - 1) <= THIRD for share in shares)
        of_worlds = sum(abs(middle[place] - 1) <= THIRD for middle in middles)
        print(
            f"{moment}: middle {statistics.median(shares):.2f}, within a third in {near:.2f} of "
            f"the trainings and in the middle of {of_worlds} of {len(worlds)} worlds"
        )
    calls = statistics.median(row[4] / max(1, row[3]) for row in found)
    print(f"calls of the optimizer, forecast over truth: middle {calls:.2f}")


if __name__ == "__main__":
    main()
