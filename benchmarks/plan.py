"""Rollouts of a training without a cap, beside the forecast of the plan.

    python benchmarks/plan.py    12 to 120 tasks, four worlds, three seeds; a minute

The forecast of ``modes/plan.py`` should be the middle.
"""

from __future__ import annotations

import dataclasses
import statistics
from concurrent.futures import ProcessPoolExecutor

from worlds.proposer import Proposer
from worlds.target import WorldExecutor
from worlds.world import SKILL, START, make_world

from pytest_skillopt.mode import mode_named
from pytest_skillopt.modes.plan import expected
from pytest_skillopt.rollouts.sampler import Sampler
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.document import Document

WORLDS = ("noisy", "adversarial", "placebo", "easy")
SIZES = (12, 24, 45, 80, 120)
SEEDS = 3


def train(case: tuple[str, int, int]) -> tuple[int, int, int, int, int]:
    """Train once: tasks, rollouts taken, their forecast, optimizer calls, their upper bound."""
    name, size, seed = case
    quarter = size // 4
    world = make_world(name, seed, train=size - 2 * quarter, val=quarter, unseen=0)
    settings = Settings(seed=seed, optimizer_workers=1)
    tasks = [dataclasses.replace(task) for task in world.tasks]
    sampler = Sampler(WorldExecutor(world), tasks)
    proposer = Proposer(world.kind, seed)
    Trainer(Document(START.encode()), tasks, sampler, proposer, settings, skill=SKILL).run()
    plan = expected(tasks, mode_named("train"), settings)
    return size, sampler.taken, plan.typical, proposer.calls, plan.calls


def main() -> None:
    cases = [(name, size, seed) for name in WORLDS for size in SIZES for seed in range(SEEDS)]
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(train, cases))
    print("tasks  rollouts (middle, least, most)  forecast  optimizer calls (middle, bound)")
    for size in SIZES:
        rows = [row for row in found if row[0] == size]
        taken = sorted(row[1] for row in rows)
        calls = statistics.median(row[3] for row in rows)
        print(
            f"{size:5}  {statistics.median(taken):8.0f} {taken[0]:6} {taken[-1]:6}  "
            f"{rows[0][2]:8}  {calls:5.0f} {rows[0][4]:5}"
        )
    shares = [row[2] / row[1] for row in found]
    print(f"forecast over truth: middle {statistics.median(shares):.2f}")


if __name__ == "__main__":
    main()
