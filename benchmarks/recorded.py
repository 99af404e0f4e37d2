"""Acceptance rules on outcomes of real agents; prints the table of docs/gate.md.

    python benchmarks/recorded.py                     every rule, about ten minutes
    python benchmarks/recorded.py --rules sequential  only rules whose name contains this
    python benchmarks/recorded.py --pairs             every pair of recorded versions, for ours
    python benchmarks/recorded.py --real --rules "sequential (default)"
                                                      lines for a small real model, 12 tasks

``benchmarks/data`` has the counts with their sources. Three kinds of edit are decided:

* *nothing changed*: both arms draw without replacement from one urn of the trials of an unchanged
  agent, so that no effect is drawn which is not there;
* *real edits*: versions of a policy text against their parents, at the measured rates;
* *others like them*: every other pair of these versions, in both directions, by its net effect.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gate import RULES, Rates, World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.gate.data import Arm

DATA = Path(__file__).parent / "data"


@dataclass
class Urn(World):
    """A world in which nothing changed: the trials of a task lie in one urn for both arms."""

    trials: list[list[bool]] = field(default_factory=list)
    left: dict[int, list[bool]] = field(default_factory=dict)

    def roll(self, arm: Arm, task: int) -> bool:
        self.cost[arm] += 1
        if not self.left.get(task):
            self.left[task] = self.rng.sample(self.trials[task], len(self.trials[task]))
        return self.left[task].pop()


@dataclass(frozen=True)
class Edit:
    """A version of a text against another."""

    name: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    direct: bool = False
    """The optimizer made the one out of the other."""

    @property
    def net(self) -> float:
        """Points of the pass rate."""
        return 100 * (sum(self.after) - sum(self.before)) / len(self.before)


@functools.cache
def versions() -> dict[str, tuple[float, ...]]:
    """Pass rates by version of the text."""
    data = json.loads((DATA / "tau2_airline_edits.json").read_text())
    return {
        version["id"]: tuple(
            version["counts"][task] / data["trials"] for task in sorted(version["counts"])
        )
        for version in data["versions"]
    }


def _parents() -> dict[str, str | None]:
    data = json.loads((DATA / "tau2_airline_edits.json").read_text())
    return {version["id"]: version["parent"] for version in data["versions"]}


@functools.cache
def edits() -> tuple[Edit, ...]:
    """All pairs of versions, the real edits marked, and one that keeps the best of each task."""
    rates, parents = versions(), _parents()
    found = [
        Edit(f"{old} -> {new}", rates[old], rates[new], direct=parents[new] == old)
        for old in rates
        for new in rates
        if old != new
    ]
    start = rates["seed"]
    best = tuple(max(task) for task in zip(*rates.values(), strict=True))
    return (*found, Edit("seed -> the best of each task", start, best))


@functools.cache
def lines(suite: str = "forms") -> tuple[Edit, ...]:
    """Compare sets of lines for a suite with none, as a small real model takes them."""
    data = json.loads((DATA / "real_model.json").read_text())["suites"][suite]
    rates = {tuple(row["lines"]): tuple(row["rates"]) for row in data["sets"]}
    return tuple(
        Edit(" / ".join(data["pool"][line] for line in chosen), rates[()], rates[chosen])
        for chosen in rates
        if chosen
    )


@functools.cache
def nulls() -> dict[str, list[list[bool]]]:
    """By name, the trials of each task of an agent that did not change."""
    found = {}
    data = json.loads((DATA / "tau_bench_null.json").read_text())["tasks"].values()
    found["gpt-4o, 4 trials"] = [
        [i < task["passed"] for i in range(task["trials"])] for task in data
    ]
    for name, rates in versions().items():
        found[f"{name}, 10 trials"] = [[i < round(10 * rate) for i in range(10)] for rate in rates]
    return found


@dataclass(frozen=True)
class Decided:
    accepted: bool
    rollouts: int


def decide_null(rule: str, name: str, replicate: int) -> Decided:
    rng = random.Random(f"{rule}/{name}/{replicate}")
    trials = nulls()[name]
    rates: Rates = [sum(task) / len(task) for task in trials]
    world = Urn(rates, rates, rng, trials=trials)
    return Decided(RULES[rule](world, {}), sum(world.cost.values()))


def decide_edit(rule: str, number: int, replicate: int) -> Decided:
    return _decide(rule, edits()[number], replicate)


def decide_line(rule: str, number: int, replicate: int) -> Decided:
    return _decide(rule, lines()[number], replicate)


def _decide(rule: str, edit: Edit, replicate: int) -> Decided:
    world = World(
        list(edit.before), list(edit.after), random.Random(f"{edit.name}/{replicate}/{rule}")
    )
    return Decided(RULES[rule](world, {}), sum(world.cost.values()))


GROUPS: dict[str, tuple[float, float]] = {
    "below -3": (-99, -3),
    "-3 to 0": (-3, 0),
    "0 to +3": (0.01, 3),
    "+3 to +6": (3, 6),
    "+9 to +16": (9, 16),
    "+22": (16, 99),
}
"""Net effects, in points, of the groups of edits."""


class Pool:
    def __init__(self, executor: ProcessPoolExecutor, replicates: int) -> None:
        self._executor = executor
        self._replicates = replicates

    def null(self, rule: str, name: str) -> list[Decided]:
        return self._run(functools.partial(decide_null, rule, name))

    def edit(self, rule: str, number: int) -> list[Decided]:
        return self._run(functools.partial(decide_edit, rule, number))

    def line(self, rule: str, number: int) -> list[Decided]:
        return self._run(functools.partial(decide_line, rule, number))

    def _run(self, one: functools.partial[Decided]) -> list[Decided]:
        return list(self._executor.map(one, range(self._replicates), chunksize=10))


def accepted(decisions: Sequence[Decided]) -> float:
    return statistics.fmean(one.accepted for one in decisions)


def rollouts(decisions: Sequence[Decided]) -> float:
    return statistics.fmean(one.rollouts for one in decisions)


def print_rules(pool: Pool, rules: Sequence[str]) -> None:
    numbered = list(enumerate(edits()))
    real = [(i, edit) for i, edit in numbered if edit.direct]
    print("Share accepted. 50 tasks; real edits by their net effect in points.")
    heads = [f"{edit.net:+.1f}" for _, edit in real]
    groups = {
        name: [i for i, e in numbered if low <= round(e.net, 2) < high]
        for name, (low, high) in GROUPS.items()
    }
    print(
        f"{'rule':<24} {'null':>7} {'worst':>6} |",
        *(f"{head:>6}" for head in heads),
        "|",
        *(f"{name:>9}" for name in groups),
        "| rollouts: null  +3 to +6  90 %",
    )
    for rule in rules:
        of_null = [pool.null(rule, name) for name in nulls()]
        of_edit = {i: pool.edit(rule, i) for i, _ in numbered}
        small = [one for i in groups["+3 to +6"] for one in of_edit[i]]
        spent = sorted(one.rollouts for one in small)
        print(
            f"{rule:<24} {statistics.fmean(map(accepted, of_null)):7.3f}"
            f" {max(map(accepted, of_null)):6.3f} |",
            *(f"{accepted(of_edit[i]):6.3f}" for i, _ in real),
            "|",
            *(
                f"{statistics.fmean(accepted(of_edit[i]) for i in group):9.3f}"
                for group in groups.values()
            ),
            f"| {statistics.fmean(map(rollouts, of_null)):14.0f} {rollouts(small):9.0f}"
            f" {spent[len(spent) * 9 // 10]:5}",
            flush=True,
        )


def print_pairs(pool: Pool, rules: Sequence[str], *, real: bool) -> None:
    decide = pool.line if real else pool.edit
    for rule in rules:
        print(f"\n{rule}: share accepted and rollouts, by net effect")
        found = lines() if real else edits()
        for number, edit in sorted(enumerate(found), key=lambda pair: pair[1].net):
            decisions = decide(rule, number)
            mark = "  (made by the optimizer)" if edit.direct else ""
            print(
                f"{edit.net:+6.1f} {accepted(decisions):6.3f} {rollouts(decisions):6.0f}"
                f"  {edit.name}{mark}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--rules", default="", help="only rules whose name contains this")
    parser.add_argument("--pairs", action="store_true", help="every pair of versions by itself")
    parser.add_argument("--real", action="store_true", help="lines for a small real model")
    parser.add_argument("--processes", type=int, default=None)
    args = parser.parse_args()
    rules = [rule for rule in RULES if args.rules in rule]
    with ProcessPoolExecutor(args.processes) as executor:
        pool = Pool(executor, args.replicates)
        if args.pairs or args.real:
            print_pairs(pool, rules, real=args.real)
        else:
            print_rules(pool, rules)


if __name__ == "__main__":
    main()
