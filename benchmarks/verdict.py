"""Measure the gate of a training on recorded edits, nulls, even lifts, trades, leaks and accidents.

    python benchmarks/verdict.py              the figures of docs/gate.md
    python benchmarks/verdict.py --quick      the same with few replicates, about two minutes
    python benchmarks/verdict.py --rules strict   only rules whose name contains this

Every rule decides the same cases; the default gate without a cap and with 250, 150 and 100 samples,
the peers' rules know no cap and take what they take. A third of the tasks is held out. The targets,
on which the search expects a lift, are other tasks that failed once under the incumbent and passed
twice under the candidate; those samples are thrown away. "No search" are comparisons that nobody
tells where to look. Rounds are the batches of samples that depend on one another; it is these that
a wide training waits for. Then come the bars that the default gate has to reach, and beside it the
shares of gains that an oracle accepts, that a two-sided test at 5 % of all tasks alike accepts, and
that pass the literal rule by itself.
"""

from __future__ import annotations

import argparse
import collections
import functools
import math
import random
import statistics
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gate import OURS, PEERS, Expectations, Rates, Simulator, World, final_verdict, suite
from recorded import edits, versions
from worlds.world import make_world, wording

from pytest_skillopt.gate.statistics import exact_test

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CAPS = (0, 250, 150, 100)
NO_CAP = 10
"""Samples of a task that the gate may take without a cap."""
LEVELS = (0.05, 0.25)
"""Levels of the oracle's test: that of a publication, and how many trades of net 0 may pass."""
FLAT = (0.3, 0.5, 0.75, 0.9)
"""Pass rates of suites whose tasks are all alike."""


@dataclass(frozen=True)
class Case:
    """A pair of skills, with what the search says of it."""

    before: Rates
    after: Rates
    held_out: list[int]
    targets: list[int]
    prior: float = 1.0
    lift: list[float] | None = None
    """Expected lift of each task, if the search says more than the targets."""
    repeats: bool = False
    """Whether each task has one outcome under each skill."""


def _trained(name: str, rules: int, rng: random.Random) -> Case:
    """Make a world in which a training has found some of the missing rules."""
    world = make_world(name, rng.randrange(1000))
    found = rng.sample(range(world.kind.known, world.kind.rules), rules)
    text = "\n".join([world.start, *(wording(rule, 0) for rule in found)])
    tasks = world.tasks
    before, after = ([world.rate(t.id, doc) for t in tasks] for doc in (world.start, text))
    held = [i for i, task in enumerate(tasks) if task.split == "val"]
    mended = [i for i in range(len(tasks)) if i not in held and after[i] - before[i] > 0.4]
    others = [i for i in range(len(tasks)) if i not in held and after[i] == before[i]]
    return Case(before, after, held, [*mended[:rules], *rng.sample(others, rng.choice((0, 0, 1)))])


def _split(before: Sequence[float], after: Sequence[float], rng: random.Random) -> Case:
    """Hold a third out, and name what looks mended among the rest."""
    n = len(before)
    held = sorted(rng.sample(range(n), n // 3))
    targets = [
        i
        for i in range(n)
        if i not in held
        and rng.random() >= before[i]
        and rng.random() < after[i]
        and rng.random() < after[i]
    ]
    return Case(list(before), list(after), held, targets)


def _recorded(low: float, high: float, rng: random.Random) -> Case:
    edit = rng.choice([edit for edit in edits() if low <= round(edit.net, 2) <= high])
    return _split(edit.before, edit.after, rng)


def _recorded_null(rng: random.Random) -> Case:
    rates = rng.choice(list(versions().values()))
    return _split(rates, rates, rng)


def _simulated_null(rng: random.Random) -> Case:
    rates = suite(40, rng)
    return _split(rates, rates, rng)


def _flat(rng: random.Random) -> Case:
    rates = [rng.choice(FLAT)] * 40
    return _split(rates, rates, rng)


def _trade(net: float, rng: random.Random) -> Case:
    """Three tasks are lifted and all others pay in common; ``net`` in points of 40 tasks."""
    p = [0.1] * 3 + [rng.choice((0.5, 0.7, 0.9, 0.95)) for _ in range(37)]
    loss = (2.4 - 0.4 * net) / sum(p[3:])
    q = [0.9] * 3 + [rate * (1 - loss) for rate in p[3:]]
    return Case(p, q, list(range(27, 40)), [0, 1, 2], prior=45.0)


def _leak(harm: float, rng: random.Random) -> Case:
    """Train tasks that mostly fail are lifted, no held-out one is, and those lose a share."""
    p = suite(40, rng)
    lifted = [i for i in range(27) if p[i] < 0.5]
    q = [0.95 if i in lifted else rate for i, rate in enumerate(p)]
    q = [rate * (1 - harm) if i >= 27 else rate for i, rate in enumerate(q)]
    return Case(p, q, list(range(27, 40)), [i for i in lifted if rng.random() < 0.5])


def _even(tasks: int, lift: float, rng: random.Random) -> Case:
    """Every task is lifted alike; a suite of at most 20 tasks is not split."""
    p = [rng.uniform(0.3, 0.75) for _ in range(tasks)]
    return Case(p, [rate + lift for rate in p], [], [], lift=[lift] * tasks)


def _accident(deviation: float, rng: random.Random) -> Case:
    """Nothing changed, but each text moves each task by an accident in log odds."""
    tasks = rng.choice((8, 15, 40))
    odds = [rng.uniform(-2, 2) for _ in range(tasks)]
    before, after = (
        [1 / (1 + math.exp(-one - rng.gauss(0, deviation))) for one in odds] for _ in range(2)
    )
    expected = set(rng.sample(range(tasks), rng.choice((1, 3, tasks // 2, tasks))))
    return Case(before, after, [], [], lift=[0.3 * (i in expected) for i in range(tasks)])


def _repeating(rng: random.Random) -> Case:
    """Nothing changed, and a server gives each text one outcome for each task."""
    tasks = rng.choice((8, 15, 40))
    rates = [rng.uniform(0.1, 0.9) for _ in range(tasks)]
    before, after = ([float(rng.random() < rate) for rate in rates] for _ in range(2))
    return Case(before, after, [], [], lift=[0.1] * tasks, repeats=True)


KINDS: dict[str, Callable[[random.Random], Case]] = {
    "gain 1-5": functools.partial(_recorded, 1, 5.99),
    "gain 10-18": functools.partial(_recorded, 9, 18),
    "loss": functools.partial(_recorded, -99, -0.4),
    "null": _recorded_null,
    "null sim": _simulated_null,
    "null flat": _flat,
    "trade 0": functools.partial(_trade, 0.0),
    "trade -2.5": functools.partial(_trade, -2.5),
    "leak": functools.partial(_leak, 0.0),
    "leak harm": functools.partial(_leak, 0.1),
}

EVEN: dict[str, Callable[[random.Random], Case]] = {
    "8 by 22": functools.partial(_even, 8, 0.22),
    "15 by 10": functools.partial(_even, 15, 0.10),
    "40 by 10": functools.partial(_even, 40, 0.10),
    "wording .4": functools.partial(_accident, 0.4),
    "wording .8": functools.partial(_accident, 0.8),
    "repeats": _repeating,
}
"""Lifts of all tasks, and two ways in which nothing looks like something."""
WITHOUT = "no search: "
"""Begins the name of a kind that nobody tells where to look."""

WORLDS: dict[str, Callable[[random.Random], Case]] = {
    "nearly": functools.partial(_trained, "nearly", 1),
    "mature": functools.partial(_trained, "mature", 3),
}
"""Gains of 3 to 6 and of 5 to 12 points."""
TRAINED = (("nearly", 380), ("nearly", 250), ("mature", 230))
"""Gains with the samples that a cap of 700, or of 350, leaves for the decision."""
BARS = (
    ("8 by 22", 105, ">=", 0.75),
    ("8 by 22", 150, ">=", 0.95),
    ("15 by 10", 150, ">=", 0.35),
    ("15 by 10", 0, ">=", 0.65),
    ("40 by 10", 0, ">=", 0.65),
    ("wording .4", 105, "<=", 0.05),
    ("wording .8", 105, "<=", 0.05),
    ("repeats", 105, "<=", 0.05),
    (f"{WITHOUT}gain 1-5", 450, ">=", 0.65),
    (f"{WITHOUT}gain 1-5", 250, ">=", 0.47),
    (f"{WITHOUT}loss", 450, "<=", 0.12),
    (f"{WITHOUT}null", 450, "<=", 0.02),
    (f"{WITHOUT}wording .8", 450, "<=", 0.05),
    (f"{WITHOUT}repeats", 450, "<=", 0.05),
)
"""Further shares of the default gate: kind, cap, relation and bar."""
LIMITS = (*((kind, cap) for kind in ("gain 1-5", "gain 10-18") for cap in CAPS), *TRAINED)


@dataclass(frozen=True)
class Decided:
    """One decision; rounds are those of the default gate only."""

    accepted: bool
    samples: int
    rounds: int


def _case(kind: str, replicate: int) -> Case:
    plain = kind.removeprefix(WITHOUT)
    case = {**KINDS, **EVEN, **WORLDS}[plain](random.Random(f"{plain}/{replicate}"))
    if plain == kind:
        return case
    return replace(case, held_out=[], targets=[], lift=None, prior=1.0, repeats=False)


def oracle(kind: str, cap: int, replicate: int) -> tuple[float, float, bool]:
    """Decide with the knowledge of which tasks the edit moves.

    Returns:
        The p-value of somebody who knows which tasks the edit moves, and that it moves no other:
        all samples go to these tasks, and an exact test asks whether they rose together. That of
        somebody who knows nothing and gives every task as many samples, and whether the observed
        mean is then higher at all.
    """
    case = _case(kind, replicate)
    rng = random.Random(f"{kind}/{replicate}/oracle/{cap}")
    n = len(case.before)
    pairs = (cap or NO_CAP * n) // 2

    def strata(tasks: Sequence[int]) -> list[tuple[int, int, int, int]]:
        sampled = collections.Counter((rng.sample(tasks, len(tasks)) * pairs)[:pairs])
        return [
            (_passes(case.after[i], k, rng), k, _passes(case.before[i], k, rng), k)
            for i, k in sampled.items()
        ]

    everywhere = strata(range(n))
    rise = sum((new - old) / k for new, k, old, _ in everywhere)
    moved = [i for i in range(n) if case.before[i] != case.after[i]]
    return exact_test(strata(moved)), exact_test(everywhere), rise > 0


def _passes(rate: float, samples: int, rng: random.Random) -> int:
    return sum(rng.random() < rate for _ in range(samples))


def decide(rule: str, kind: str, cap: int, replicate: int) -> Decided:
    """One decision; every rule and cap meets the same case in the same replicate."""
    case = _case(kind, replicate)
    rng = random.Random(f"{kind}/{replicate}/{rule}/{cap}")
    if rule != OURS:
        world = World(case.before, case.after, rng)
        return Decided(PEERS[rule](world, {}), sum(world.cost.values()), 0)
    simulator = Simulator(
        len(case.before),
        lambda i: rng.random() < case.after[i],
        lambda i: rng.random() < case.before[i],
    )
    expectations = Expectations(case.held_out, case.targets, case.prior, case.lift)
    verdict, rounds = final_verdict(simulator, expectations, cap, repeats=case.repeats)
    return Decided(verdict.accepted, verdict.candidate_samples + verdict.incumbent_samples, rounds)


Table = dict[tuple[str, int, str], list[Decided]]


def share(decisions: Sequence[Decided]) -> float:
    return statistics.fmean(one.accepted for one in decisions)


def print_rules(table: Table) -> None:
    rows: defaultdict[tuple[str, int], dict[str, list[Decided]]] = defaultdict(dict)
    for (rule, cap, kind), decisions in table.items():
        rows[rule, cap][kind] = decisions
    print("Share accepted; samples and rounds of a decision, in the mean over all kinds.")
    print(f"{'rule':<24} {'cap':>4}", *(f"{kind:>10}" for kind in KINDS), " samples rounds most")
    for (rule, cap), found in rows.items():
        flat = [one for decisions in found.values() for one in decisions]
        shown = [f"{share(found[kind]):10.3f}" for kind in KINDS]
        samples, rounds = (
            statistics.fmean(getattr(one, part) for one in flat) for part in ("samples", "rounds")
        )
        most = max(one.rounds for one in flat)
        waits = f"{rounds:6.1f} {most:4}" if rule == OURS else f"{'-':>6} {'-':>4}"
        print(f"{rule:<24} {cap or '-':>4}", *shown, f"{samples:8.0f} {waits}", flush=True)


def print_requirements(table: Table) -> None:
    """Return the figures that the default gate must reach, with their standard errors."""

    def of(kind: str, cap: int = 0) -> list[float]:
        return [float(one.accepted) for one in table[OURS, cap, kind]]

    spent = [float(one.samples) for one in table[OURS, 0, "gain 1-5"]]
    rows = [
        ("gains of 1 to 5 points, no cap", of("gain 1-5"), ">=", 0.59),
        ("  samples that takes", spent, "<=", 480),
        ("gains of 1 to 5 points at 250", of("gain 1-5", 250), ">=", 0.40),
        *(
            (f"gains of 10 to 18 points at {cap}", of("gain 10-18", cap), ">=", bar)
            for cap, bar in ((250, 0.98), (150, 0.90), (100, 0.61))
        ),
        *((f"losses, cap {cap or 'none'}", of("loss", cap), "<=", 0.12) for cap in CAPS),
        *(
            (f"{kind}, cap {cap or 'none'}", of(kind, cap), "<=", bar)
            for kind, bar in (("null", 0.03), ("null sim", 0.03), ("null flat", 0.05))
            for cap in CAPS
        ),
        *(
            (f"{kind} points, cap {cap or 'none'}", of(kind, cap), "<=", bar)
            for kind, bar in (("trade 0", 0.25), ("trade -2.5", 0.12))
            for cap in (0, 100)
        ),
        *(
            (f"{kind}, cap {cap or 'none'}", of(kind, cap), sign, bar)
            for kind, cap, sign, bar in BARS
        ),
    ]
    print(f"\n{'the default gate':<36} {'measured':>9} {'error':>6}    must be")
    for what, values, relation, bound in rows:
        measured = statistics.fmean(values)
        error = statistics.pstdev(values) / len(values) ** 0.5
        missed = measured > bound if relation == "<=" else measured < bound
        digits = 0 if bound > 1 else 3
        print(
            f"{what:<36} {measured:>9.{digits}f} {error:6.{digits}f}    {relation} {bound:g}"
            f"{'  MISSED' if missed else ''}"
        )


def print_limits(executor: ProcessPoolExecutor, table: Table, replicates: range) -> None:
    heads = (f"oracle {level:.2f}" for level in LEVELS)
    print(f"\n{'beside an oracle':<30}", f"{'gate':>6}", *heads, "all tasks alike", "higher mean")
    for kind, cap in LIMITS:
        one = functools.partial(oracle, kind, cap)
        found = list(executor.map(one, replicates, chunksize=10))
        shares = [statistics.fmean(p <= level for p, _, _ in found) for level in LEVELS]
        pooled = statistics.fmean(p <= LEVELS[0] / 2 for _, p, _ in found)
        higher = statistics.fmean(rose for _, _, rose in found)
        ours = share(table[OURS, cap, kind])
        shown = [f"{value:11.3f}" for value in (*shares, pooled, higher)]
        print(f"{f'{kind}, cap {cap or None}':<30} {ours:6.3f}", *shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="number of the first replicate")
    parser.add_argument("--quick", action="store_true", help="60 replicates, about two minutes")
    parser.add_argument("--rules", default="", help="only peers whose name contains this")
    args = parser.parse_args()
    replicates = range(args.first, args.first + (60 if args.quick else args.replicates))
    wanted = [(OURS, cap) for cap in CAPS]
    wanted += [(rule, 0) for rule in PEERS if args.rules in rule]
    table: Table = {}
    with ProcessPoolExecutor() as executor:
        for rule, cap in wanted:
            for kind in KINDS:
                one = functools.partial(decide, rule, kind, cap)
                found = executor.map(one, replicates, chunksize=10)
                table[rule, cap, kind] = list(found)
        print_rules(table)
        further = [(kind, cap) for kind, cap, _, _ in BARS]
        for kind, cap in [*TRAINED, *further]:
            one = functools.partial(decide, OURS, kind, cap)
            table[OURS, cap, kind] = list(executor.map(one, replicates, chunksize=10))
        print_requirements(table)
        print_limits(executor, table, replicates)


if __name__ == "__main__":
    main()
