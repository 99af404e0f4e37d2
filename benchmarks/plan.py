"""Rollouts of a training without a cap, as share of the upper bound that the plan prints.

    python benchmarks/plan.py            12 to 120 tasks, four worlds, three seeds; a minute
    python benchmarks/plan.py --verify   what one more target of skillopt_verify costs; seconds

``modes/plan.py`` calls the middle of these shares typical.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import statistics
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from worlds.proposer import Proposer
from worlds.target import WorldExecutor
from worlds.world import SKILL, START, make_world

from pytest_skillopt.addons.compare.targets import last_check
from pytest_skillopt.gate.data import CANDIDATE, GateTask, Sample
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.model.config import OPENAI_URL, price_of
from pytest_skillopt.modes.plan import expected
from pytest_skillopt.options import modes
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.document import Document
from pytest_skillopt.suite.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.gate.data import Draw

WORLDS = ("noisy", "adversarial", "placebo", "easy")
SIZES = (12, 24, 45, 80, 120)
SEEDS = 3


def train(case: tuple[str, int, int]) -> tuple[int, int, int, int, int]:
    """Train once: tasks, rollouts taken, their upper bound, optimizer calls, their upper bound."""
    name, size, seed = case
    quarter = size // 4
    world = make_world(name, seed, train=size - 2 * quarter, val=quarter, unseen=0)
    settings = Settings(seed=seed, optimizer_workers=1)
    tasks = [dataclasses.replace(task) for task in world.tasks]
    sampler = Sampler(WorldExecutor(world), tasks)
    proposer = Proposer(world.kind, seed)
    Trainer(Document(START.encode()), tasks, sampler, proposer, settings, skill=SKILL).run()
    plan = expected(tasks, modes()["train"], settings)
    return size, sampler.taken, plan.most, proposer.calls, plan.calls


CHANGES = {"gain of 30 points": 0.3, "no change": 0.0, "loss of 10": -0.1, "loss of 30": -0.3}
REPLICATES = 200
MODEL, TOKENS = "gpt-5", (1500, 500)
"""The dear target, and the tokens of a rollout in and out."""


def verify(size: int, change: float, seed: int) -> tuple[int, str]:
    """Check one target that a change moves by so much; samples and decision."""
    rng = random.Random(f"{size}/{change}/{seed}")
    settings, names = Settings(), [f"t{n}" for n in range(size)]
    rates = {name: rng.betavariate(1.0, 1.0) for name in names}
    taken = 0

    def take(draws: Sequence[Draw]) -> list[Sample]:
        nonlocal taken
        found = []
        for draw in draws:
            taken += 1
            rate = rates[draw.task] + (change if draw.arm == CANDIDATE else 0.0)
            passed = rng.random() < rate
            found.append(Sample(draw, passed, float(passed)))
        return found

    gate = last_check([GateTask(name) for name in names], settings, settings.final_rollouts // 2)
    decision = run_gate(gate, take).decision
    return taken, decision


def print_verify() -> None:
    price = price_of(MODEL, OPENAI_URL, "")
    assert price is not None
    print("| tasks | the target sees | calls (mean, most) | money | worse | cannot tell |")
    print("|---|---|---|---|---|---|")
    for size in SIZES[:3]:
        for name, change in CHANGES.items():
            found = [verify(size, change, seed) for seed in range(REPLICATES)]
            calls = [taken for taken, _ in found]
            shares = [
                sum(decision == one for _, decision in found) / REPLICATES
                for one in ("rejected", "unmeasured")
            ]
            money = statistics.fmean(calls) * price.cost(*TOKENS)
            print(
                f"| {size} | {name} | {statistics.fmean(calls):.0f}, {max(calls)} | ${money:.2f} "
                f"| {shares[0]:.2f} | {shares[1]:.2f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--verify", action="store_true", help="the cost of one more target")
    if parser.parse_args().verify:
        print_verify()
        return
    cases = [(name, size, seed) for name in WORLDS for size in SIZES for seed in range(SEEDS)]
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(train, cases))
    print("tasks  rollouts (middle, least, most)  bound  share  optimizer calls (middle, bound)")
    for size in SIZES:
        rows = [row for row in found if row[0] == size]
        taken = sorted(row[1] for row in rows)
        bound = rows[0][2]
        share = statistics.median(taken) / bound
        calls = statistics.median(row[3] for row in rows)
        print(
            f"{size:5}  {statistics.median(taken):8.0f} {taken[0]:6} {taken[-1]:6}  {bound:6}  "
            f"{share:5.2f}  {calls:5.0f} {rows[0][4]:5}"
        )
    shares = [row[1] / row[2] for row in found]
    print(f"share of the bound over all: middle {statistics.median(shares):.2f}")


if __name__ == "__main__":
    main()
