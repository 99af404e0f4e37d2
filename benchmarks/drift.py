"""False alarms and power of ``--skillopt-drift``, by simulation.

    python benchmarks/drift.py                     1,000 pairs of measurements a row

A first model is measured; if the skill still helps it, a second model is measured against that
receipt, as by the mode. The tasks' pass rates are those of ``benchmarks/gate.py``; the skill lifts
them by ``gain``. No model is called. A row says of the second measurement how often each verdict
came, and in how many of the pairs there was a receipt to compare with.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from gate import Rates, lift, mirrored, suite

from pytest_skillopt.addons.drift.gate import Counts, DriftGate, Word
from pytest_skillopt.gate.data import CANDIDATE, INCUMBENT, GateTask, Sample
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.gate.statistics import interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_skillopt.gate.data import Draw

WORDS: tuple[Word, ...] = ("still helps", "no longer needed", "hurts", "cannot tell")
KINDS = ("unchanged", "half is left", "useless", "not needed", "harmful")
ALARMS: dict[str, tuple[Word, ...]] = {
    "unchanged": ("no longer needed", "hurts"),
    "half is left": ("no longer needed", "hurts"),
    "useless": ("hurts",),
    "not needed": ("hurts",),
    "harmful": (),
}
"""False alarms for each kind of second model."""


def measured(
    without: Rates, skilled: Rates, then: Mapping[str, Counts], rng: random.Random
) -> tuple[Word | None, dict[str, Counts]]:
    """Carry out one measurement; its verdict and counts."""

    def roll(draws: Sequence[Draw]) -> list[Sample]:
        rates = {INCUMBENT: without, CANDIDATE: skilled}
        return [Sample(d, rng.random() < rates[d.arm][int(d.task)]) for d in draws]

    gate = DriftGate([GateTask(f"{i:04d}") for i in range(len(without))], decision=1, then=then)
    run_gate(gate, roll)
    found = {}
    for task in gate.tasks:
        new, old = gate.counts[CANDIDATE, task], gate.counts[INCUMBENT, task]
        found[task] = (new.passed, new.n, old.passed, old.n)
    return gate.word, found


def pair(kind: str, population: str, n: int, gain: float, seed: int) -> tuple[Word | None, bool]:
    """Measure two models, one after the other; the second verdict, and if it had a receipt."""
    rng = random.Random(f"{kind} {population} {n} {gain} {seed}")
    without = suite(population, n, rng)
    skilled = list(without) if kind == "useless" else lift(without, gain, rng)
    word, counts = measured(without, skilled, {}, rng)
    then = counts if word == "still helps" else {}
    if kind == "half is left":
        skilled = [(a + b) / 2 for a, b in zip(without, skilled, strict=True)]
    elif kind == "not needed":
        without = skilled
    elif kind == "harmful":
        skilled = mirrored(lambda rates: lift(rates, gain, rng), without)
    return measured(without, skilled, then, rng)[0], bool(then)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--replicates", type=int, default=1000)
    replicates = parser.parse_args().replicates
    print(
        "| second model | suite | tasks | gain | "
        + " | ".join(WORDS)
        + " | false alarms | receipt |"
    )
    print("|---" * 10 + "|")
    with ProcessPoolExecutor() as pool:
        for kind in KINDS:
            for population in ("agent", "noisy"):
                for n, gain in ((12, 0.2), (12, 0.4), (30, 0.2), (30, 0.4), (100, 0.1)):
                    row = partial(pair, kind, population, n, gain)
                    found = list(pool.map(row, range(replicates), chunksize=50))
                    words = Counter(word for word, _ in found)
                    alarms = sum(words[word] for word in ALARMS[kind])
                    high = interval([(alarms, replicates)])[1]
                    shares = " | ".join(f"{words[word] / replicates:.3f}" for word in WORDS)
                    receipts = sum(had for _, had in found) / replicates
                    print(
                        f"| {kind} | {population} | {n} | {gain:.0%} | {shares} | "
                        f"{alarms / replicates:.4f} (to {high:.4f}) | {receipts:.2f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
