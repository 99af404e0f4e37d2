"""False alarms and power of ``--skillopt-drift``, on simulated and on recorded outcomes.

    python benchmarks/drift.py                     1,000 pairs of measurements a row
    python benchmarks/drift.py --recorded          only the rows of recorded outcomes

A first model is measured; if the skill still helps it, a second model is measured against that
receipt, as by the mode. No model is called. A row says of the second measurement how often each
verdict came, and in how many of the pairs there was a receipt to compare with.

Simulated rows take the tasks' pass rates of ``benchmarks/gate.py``; the skill lifts them by
``gain``. Recorded rows take the outcomes of three real models (``benchmarks/data``), a version of a
policy or a set of lines as the skill, and its parent as none:

* *unchanged*, *half is left*: both measurements at the recorded rates of one model, or the second
  with half of the gain;
* *useless*: both arms at the rates of an unchanged agent, which are those of all its trials
  together (an urn of a few trials, refilled when it is empty, would not do: the arms that share it
  differ more than independent rollouts do);
* *not needed*: the second measurement is of a model that needs no skill: another one, or the first
  at the rates that it has with the skill;
* *harmful*: versions and lines that cost their model points.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from gate import Rates, World, lift, mirrored, suite
from recorded import edits, lines, nulls

from pytest_skillopt.addons.compare.gates import DriftGate
from pytest_skillopt.gate.data import CANDIDATE, INCUMBENT, GateTask, Sample
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.gate.statistics import interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_skillopt.addons.receipts import Counts, Word
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


def measured(world: World, then: Mapping[str, Counts]) -> tuple[Word | None, dict[str, Counts]]:
    """Carry out one measurement; its verdict and counts."""

    def roll(draws: Sequence[Draw]) -> list[Sample]:
        return [Sample(d, world.roll(d.arm, int(d.task))) for d in draws]

    tasks = [GateTask(f"{i:04d}") for i in range(len(world.p))]
    gate = DriftGate(tasks, decision=1, then=then)
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
    word, counts = measured(World(without, skilled, rng), {})
    then = counts if word == "still helps" else {}
    if kind == "half is left":
        skilled = [(a + b) / 2 for a, b in zip(without, skilled, strict=True)]
    elif kind == "not needed":
        without = skilled
    elif kind == "harmful":
        skilled = mirrored(lambda rates: lift(rates, gain, rng), without)
    return measured(World(without, skilled, rng), then)[0], bool(then)


def helped() -> dict[str, tuple[Rates, Rates]]:
    """Return recorded pass rates without and with a skill that helps its model."""
    oss = max(edits(), key=lambda edit: edit.net)
    forms = max(lines(), key=lambda edit: edit.net)
    tickets = max(lines("tickets"), key=lambda edit: edit.net)
    return {
        f"{model}, {edit.net:+.1f}": (list(edit.before), list(edit.after))
        for model, edit in (
            ("gpt-oss-120b, airline", oss),
            ("Qwen2.5-0.5B, forms", forms),
            ("Qwen2.5-0.5B, tickets", tickets),
        )
    }


def recorded_rows() -> list[tuple[str, str]]:
    """List kind and name of each row."""
    rows = [(kind, name) for kind in ("unchanged", "half is left") for name in helped()]
    rows += [("useless", name) for name in nulls()]
    airline = next(iter(helped()))
    rows += [("not needed", f"{airline}, then {name}") for name in ("gpt-4o", "with it")]
    rows += [("not needed", f"{name}, then with it") for name in list(helped())[1:]]
    return rows + [("harmful", name) for name in _harmful()]


def _harmful() -> dict[str, tuple[Rates, Rates]]:
    found = [("gpt-oss-120b", e) for e in edits() if e.net <= -9 and "best" not in e.name]
    found += [("Qwen2.5-0.5B", edit) for edit in lines() if edit.net <= -9]
    return {
        f"{model}, {edit.name[:24]}, {edit.net:+.1f}": (list(edit.before), list(edit.after))
        for model, edit in found
    }


def recorded_pair(kind: str, name: str, seed: int) -> tuple[Word | None, bool]:
    """Measure as ``pair`` does, at recorded rates or from recorded trials."""
    rng = random.Random(f"{kind} {name} {seed}")
    if kind == "useless":
        return measured(_same(name, rng), {})[0], False
    if kind == "harmful":
        return measured(World(*_harmful()[name], rng), {})[0], False
    without, skilled = helped()[name.partition(", then")[0]]
    word, counts = measured(World(without, skilled, rng), {})
    then = counts if word == "still helps" else {}
    world = World(without, skilled, rng)
    if kind == "half is left":
        half = [(a + b) / 2 for a, b in zip(without, skilled, strict=True)]
        world = World(without, half, rng)
    elif name.endswith("gpt-4o"):
        world = _same("gpt-4o, 4 trials", rng)
    elif kind == "not needed":
        world = World(skilled, skilled, rng)
    return measured(world, then)[0], bool(then)


def _same(name: str, rng: random.Random) -> World:
    rates = [sum(task) / len(task) for task in nulls()[name]]
    return World(rates, rates, rng)


def row(
    pool: ProcessPoolExecutor,
    kind: str,
    shown: str,
    measure: Callable[[int], tuple[Word | None, bool]],
    replicates: int,
) -> None:
    """Print one row."""
    found = list(pool.map(measure, range(replicates), chunksize=50))
    words = Counter(word for word, _ in found)
    alarms = sum(words[word] for word in ALARMS[kind])
    high = interval([(alarms, replicates)])[1]
    shares = " | ".join(f"{words[word] / replicates:.3f}" for word in WORDS)
    receipts = sum(had for _, had in found) / replicates
    print(
        f"| {kind} | {shown} | {shares} | {alarms / replicates:.4f} (to {high:.4f}) | "
        f"{receipts:.2f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--recorded", action="store_true", help="only recorded outcomes")
    args = parser.parse_args()
    print("| second model | skill | " + " | ".join(WORDS) + " | false alarms | receipt |")
    print("|---" * 8 + "|")
    with ProcessPoolExecutor() as pool:
        for kind, name in recorded_rows():
            shown = f"gpt-oss-120b, {name}" if kind == "useless" and "gpt" not in name else name
            row(pool, kind, shown, partial(recorded_pair, kind, name), args.replicates)
        for kind in KINDS if not args.recorded else ():
            for population in ("agent", "noisy"):
                for n, gain in ((12, 0.2), (12, 0.4), (30, 0.2), (30, 0.4), (100, 0.1)):
                    shown = f"{population}, {n} tasks, +{100 * gain:.0f}"
                    measure = partial(pair, kind, population, n, gain)
                    row(pool, kind, shown, measure, args.replicates)


if __name__ == "__main__":
    main()
