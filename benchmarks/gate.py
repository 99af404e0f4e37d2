"""Errors and power of the acceptance gates, by simulation; prints the table of docs/gate.md.

    python benchmarks/gate.py                       ours and the peers' rules, about two minutes
    python benchmarks/gate.py --replicates 4000     the figures of the README
    python benchmarks/gate.py --speed               time of a batch with 1,000 tasks
    python benchmarks/verdict.py                    the decision of a training, and its bars

The world: task i passes with probability p[i] under the incumbent and q[i] under the candidate, and
every rollout is an independent draw. The pass rates come from mixtures of beta distributions; the
one named ``agent`` has the run-to-run spread of published agent runs (1.5 points on 500 tasks,
arXiv 2602.07150). No model is called.

``reference`` drives our gate from a simulator that knows only functions ``cand(i)`` and ``inc(i)``.
"""

from __future__ import annotations

import argparse
import functools
import math
import random
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_skillopt.gate.data import (
    CANDIDATE,
    INCUMBENT,
    TAPE,
    GateOptions,
    GateTask,
    Sample,
    Verdict,
)
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.search.extensions import make_gate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.gate.data import Arm, Draw

Rates = list[float]
T = TypeVar("T")

POPULATIONS: dict[str, list[tuple[float, float, float]]] = {
    "det": [(0.50, 60, 1), (0.35, 1, 60), (0.15, 0.5, 0.5)],
    "agent": [(0.40, 12, 1), (0.25, 1, 12), (0.35, 1.5, 1.5)],
    "noisy": [(0.20, 8, 1), (0.15, 1, 8), (0.65, 2, 2)],
}
"""Weight and parameters of each beta component."""


def suite(population: str, n: int, rng: random.Random) -> Rates:
    """Pass rates of ``n`` tasks under the incumbent."""
    parts = POPULATIONS[population]
    picks = rng.choices(parts, [weight for weight, _, _ in parts], k=n)
    return [rng.betavariate(a, b) for _, a, b in picks]


# Edits. Each turns the pass rates of the incumbent into those of the candidate.


def lift(p: Rates, gain: float, rng: random.Random) -> Rates:
    """Fix tasks one after the other, likelier those with room, until the mean has moved by gain."""
    gains = [max(x, rng.uniform(0.85, 1)) - x for x in p]
    order = sorted(range(len(p)), key=lambda i: rng.expovariate(1) / max(gains[i], 1e-3) ** 2)
    q, left = list(p), gain * len(p)
    for i in order:
        step = min(gains[i], max(left, 0.0))
        q[i] += step
        left -= step
    return q


def mirrored(edit: Callable[[Rates], Rates], p: Rates) -> Rates:
    """Turn the same edit to the worse."""
    return [1 - x for x in edit([1 - x for x in p])]


def shift(p: Rates, gain: float) -> Rates:
    """Move every task by the same logit so that the mean moves by ``gain``."""
    logits = [math.log((x + 1e-9) / (1 - x + 1e-9)) for x in p]
    low, high = -8.0, 8.0
    for _ in range(40):
        middle = (low + high) / 2
        q = [1 / (1 + math.exp(-x - middle)) for x in logits]
        low, high = (middle, high) if sum(q) - sum(p) < gain * len(p) else (low, middle)
    return q


def trade(p: Rates, fixed: int, broken: int, rng: random.Random, *, swap: bool = False) -> Rates:
    """Fix some tasks and break others; ``swap`` exchanges their rates, so that the mean stays."""
    ups = sorted(range(len(p)), key=lambda i: rng.expovariate(1) / max(1 - p[i], 1e-3) ** 2)[:fixed]
    rest = [i for i in range(len(p)) if i not in ups]
    downs = sorted(rest, key=lambda i: rng.expovariate(1) / max(p[i], 1e-3) ** 2)[:broken]
    q = list(p)
    if swap:
        for up, down in zip(ups, downs, strict=True):
            q[up], q[down] = p[down], p[up]
        return q
    for i in ups:
        q[i] = max(p[i], rng.uniform(0.85, 1))
    for i in downs:
        q[i] = min(p[i], rng.uniform(0, 0.15))
    return q


EDITS: dict[str, Callable[[Rates, random.Random], Rates]] = {
    "null": lambda p, rng: list(p),
    "swap22": lambda p, rng: trade(p, 2, 2, rng, swap=True),
    "harm": lambda p, rng: mirrored(lambda x: lift(x, rng.uniform(0.02, 0.05), rng), p),
    "mix24": lambda p, rng: trade(p, 2, 4, rng),
    "harmbig": lambda p, rng: mirrored(lambda x: lift(x, 0.20, rng), p),
    "small": lambda p, rng: lift(p, rng.uniform(0.02, 0.05), rng),
    "one": lambda p, rng: lift(p, 0.9 / len(p), rng),
    "diffuse": lambda p, rng: shift(p, rng.uniform(0.02, 0.05)),
    "mix32": lambda p, rng: trade(p, 3, 2, rng),
    "med": lambda p, rng: lift(p, 0.10, rng),
    "big": lambda p, rng: lift(p, 0.20, rng),
}
HARMDIFF = "harmdiff"
MIX = {
    "null": 0.50,
    "harm": 0.15,
    HARMDIFF: 0.05,
    "harmbig": 0.05,
    "small": 0.175,
    "diffuse": 0.025,
    "med": 0.05,
}
"""Edits that an optimizer proposes over a training: half of them change nothing."""


def edited(kind: str, p: Rates, rng: random.Random) -> Rates:
    if kind == HARMDIFF:
        return shift(p, -rng.uniform(0.02, 0.05))
    return EDITS[kind](p, rng)


# Rules.


@dataclass
class World:
    """Rolls the arms and counts what it costs."""

    p: Rates
    q: Rates
    rng: random.Random
    cost: dict[Arm, int] = field(default_factory=lambda: {INCUMBENT: 0, CANDIDATE: 0})

    def roll(self, arm: Arm, task: int) -> bool:
        self.cost[arm] += 1
        return self.rng.random() < (self.p if arm == INCUMBENT else self.q)[task]

    def passes(self, arm: Arm, rounds: int) -> list[int]:
        return [sum(self.roll(arm, i) for _ in range(rounds)) for i in range(len(self.p))]


Rule = Callable[[World, dict[str, Any]], bool]
"""Decides about the candidate of a world; what it keeps from step to step is in the dictionary."""


def ours(name: str, options: GateOptions | None = None) -> Rule:
    """One of our gates, with a store of samples as the sampler has it."""

    def rule(world: World, memory: dict[str, Any]) -> bool:
        verdict = drive(name, options, len(world.p), world.roll, memory)
        return verdict.accepted

    return rule


def drive(
    name: str,
    options: GateOptions | None,
    n: int,
    roll: Callable[[Arm, int], bool],
    memory: dict[str, Any],
) -> Verdict:
    """Run a decision; ``memory`` holds the incumbent's samples and the number of decisions."""
    ids = [f"{i:05d}" for i in range(n)]
    store: dict[tuple[Arm, str, str, int], bool] = memory.setdefault("store", {})
    before = memory["before"] = memory.get("before", -1) + 1
    gate = make_gate(name, [GateTask(i) for i in ids], options, decisions_before=before)
    verdict = run_gate(gate, lambda draws: [_answer(draw, store, roll) for draw in draws])
    goes_on: Arm = CANDIDATE if verdict.accepted else INCUMBENT
    memory["store"] = {
        (INCUMBENT, task, stream, index): passed
        for (arm, task, stream, index), passed in store.items()
        if arm == goes_on and stream == TAPE
    }
    return verdict


def _answer(
    draw: Draw,
    store: dict[tuple[Arm, str, str, int], bool],
    roll: Callable[[Arm, int], bool],
) -> Sample:
    key = (draw.arm, draw.task, draw.stream, draw.index)
    if key not in store:
        store[key] = roll(draw.arm, int(draw.task))
    return Sample(draw, store[key], float(store[key]))


def reference(
    n: int,
    cand: Callable[[int], int],
    inc: Callable[[int], int],
    state: dict[str, Any],
) -> bool:
    """Our default gate for a simulator that rolls one task at a time."""

    def roll(arm: Arm, task: int) -> bool:
        return bool(cand(task) if arm == CANDIDATE else inc(task))

    return drive("sequential", None, n, roll, state).accepted


EXPECTED = 0.3
"""Lift that is expected of a target if nothing else is said."""


def final_reference(
    n: int,
    cand: Callable[[int], bool],
    inc: Callable[[int], bool],
    *,
    held_out: Sequence[int],
    targets: Sequence[int],
    cap: int,
    prior: float = 1.0,
    lift: Sequence[float] | None = None,
) -> bool:
    """Check if the decision of a default training accepts.

    Args:
        n: tasks.
        cand: rolls a task under the candidate.
        inc: rolls it under the incumbent.
        held_out: tasks that the search has not seen.
        targets: tasks on which it expects a change, if ``lift`` does not say it for each task;
            without either there was no search.
        cap: samples that may be taken; 0 without a cap.
        prior: e-value of the bets of the search.
        lift: the expected lift of each task.
    """
    told: dict[str, Any] = {"held_out": held_out, "targets": targets, "cap": cap, "prior": prior}
    return final_verdict(n, cand, inc, **told, lift=lift)[0].accepted


def final_verdict(
    n: int,
    cand: Callable[[int], bool],
    inc: Callable[[int], bool],
    *,
    held_out: Sequence[int],
    targets: Sequence[int],
    cap: int,
    prior: float = 1.0,
    lift: Sequence[float] | None = None,
    **options: Any,
) -> tuple[Verdict, int]:
    """Return the verdict of ``final_reference``, and how many rounds it took.

    ``options`` are further ``GateOptions``.
    """
    ids = [f"{i:05d}" for i in range(n)]
    expected = dict(enumerate(lift)) if lift is not None else {}
    if targets and lift is None:
        expected = dict.fromkeys(set(range(n)) - set(held_out), 0.0)
        expected |= dict.fromkeys(targets, EXPECTED)
    known = tuple((ids[i], change) for i, change in expected.items())
    gate_options = GateOptions(
        final=True,
        held_out=tuple(ids[i] for i in held_out),
        budget=cap or None,
        lift=known if known else None,
        log_e=math.log(prior),
        **options,
    )
    rounds = 0

    def answer(draws: Sequence[Draw]) -> list[Sample]:
        nonlocal rounds
        rounds += 1
        rolled = [
            bool(cand(int(d.task)) if d.arm == CANDIDATE else inc(int(d.task))) for d in draws
        ]
        return [Sample(d, won, float(won)) for d, won in zip(draws, rolled, strict=True)]

    gate = make_gate("sequential", [GateTask(i) for i in ids], gate_options)
    return run_gate(gate, answer), rounds


def cached(rounds: int, margin: float = 0.0, *, majority: bool = False) -> Rule:
    """Greater than the score with which the incumbent was accepted: SkillOpt (K = 1), gbrain."""

    def score(world: World, arm: Arm) -> float:
        passes = world.passes(arm, rounds)
        of_task = [2 * s > rounds for s in passes] if majority else [s / rounds for s in passes]
        return statistics.fmean(of_task)

    def rule(world: World, memory: dict[str, Any]) -> bool:
        if "score" not in memory:
            memory["score"] = score(world, INCUMBENT)
        new = score(world, CANDIDATE)
        accepted: bool = new > memory["score"] + margin + 1e-12
        if accepted:
            memory["score"] = new
        return accepted

    return rule


def fresh(rounds: int, *, confirmations: int = 1) -> Rule:
    """Both arms measured anew; with two confirmations the rule of SkillOpt-Sleep."""

    def rule(world: World, memory: dict[str, Any]) -> bool:
        baseline = sum(world.passes(INCUMBENT, rounds))
        return all(sum(world.passes(CANDIDATE, rounds)) > baseline for _ in range(confirmations))

    return rule


def minibatch(size: int = 3) -> Rule:
    """GEPA: a minibatch must improve, then one pass over the suite must beat the best one."""

    def rule(world: World, memory: dict[str, Any]) -> bool:
        if "score" not in memory:
            memory["score"] = sum(world.passes(INCUMBENT, 1))
        batch = world.rng.sample(range(len(world.p)), size)
        new, old = (sum(world.roll(arm, i) for i in batch) for arm in (CANDIDATE, INCUMBENT))
        if new <= old:
            return False
        score = sum(world.passes(CANDIDATE, 1))
        accepted: bool = score > memory["score"]
        if accepted:
            memory["score"] = score
        return accepted

    return rule


def median(rounds: int) -> Rule:
    """Accept if the median of so many fresh suite means is strictly greater."""

    def rule(world: World, memory: dict[str, Any]) -> bool:
        new, old = (
            statistics.median(sum(world.passes(arm, 1)) for _ in range(rounds))
            for arm in (CANDIDATE, INCUMBENT)
        )
        return new > old

    return rule


def pace(alpha: float = 0.05, stake: float = 0.5, pairs: int = 250) -> Rule:
    """PACE (arXiv 2606.08106): bet on the discordant of paired outcomes, at most so many pairs."""

    def rule(world: World, memory: dict[str, Any]) -> bool:
        wealth, tasks = 1.0, range(len(world.p))
        order = [task for _ in range(-(-pairs // len(tasks))) for task in tasks][:pairs]
        for task in order:
            new, old = world.roll(CANDIDATE, task), world.roll(INCUMBENT, task)
            wealth *= 1 + stake * (new - old)
            if wealth >= 1 / alpha:
                return True
        return False

    return rule


DEFAULT = "sequential (default)"
RULES: dict[str, Rule] = {
    DEFAULT: ours("sequential"),
    "sequential, veto": ours("sequential", GateOptions(veto=True)),
    "sequential, alpha_run .10": ours("sequential", GateOptions(alpha_run=0.10)),
    "strict K=3": ours("strict"),
    "confirm K=3": ours("confirm"),
    "SkillOpt: K=1 cached": cached(1),
    "K=5 cached": cached(5),
    "gbrain: median 3 + .05": cached(3, 0.05, majority=True),
    "SkillOpt-Sleep: twice": fresh(1, confirmations=2),
    "GEPA: minibatch 3 + val": minibatch(),
    "median of 5": median(5),
    "PACE: paired e-process": pace(),
}


# Measurements.


@dataclass(frozen=True)
class Setup:
    """Simulated decisions."""

    population: str
    tasks: int
    steps: int
    seed: int


@dataclass(frozen=True)
class Decided:
    """One decision about an incumbent that has not been measured before."""

    accepted: bool
    candidate: int
    incumbent: int


def decide(rule: str, kind: str, setup: Setup, replicate: int) -> Decided:
    rng = random.Random(f"{setup.seed}/{replicate}/{kind}")
    p = suite(setup.population, setup.tasks, random.Random(f"{setup.seed}/{replicate}"))
    world = World(p, edited(kind, p, rng), rng)
    accepted = RULES[rule](world, {})
    return Decided(accepted, world.cost[CANDIDATE], world.cost[INCUMBENT])


@dataclass(frozen=True)
class Trained:
    """One training. Gains are in parts of the pass rate."""

    gain: float
    reachable: float
    false_accepts: int
    rollouts: int


def train(rule: str, setup: Setup, replicate: int) -> Trained:
    """Proposals one after the other; what is accepted becomes the incumbent."""
    seed = f"{setup.seed}/training/{replicate}"
    rng = random.Random(seed)
    start = suite(setup.population, setup.tasks, rng)
    kinds = rng.choices(list(MIX), list(MIX.values()), k=setup.steps)
    p, best, false, rollouts = start, start, 0, 0
    memory: dict[str, Any] = {}
    for step, kind in enumerate(kinds):
        world = World(p, edited(kind, p, random.Random(f"{seed}/{step}")), rng)
        accepted = RULES[rule](world, memory)
        rollouts += sum(world.cost.values())
        if accepted:
            false += sum(world.q) <= sum(p) + 1e-9
            p = world.q
        best = max(best, edited(kind, best, random.Random(f"{seed}/{step}")), key=_rounded_sum)
    n = setup.tasks
    return Trained((sum(p) - sum(start)) / n, (sum(best) - sum(start)) / n, false, rollouts)


def _rounded_sum(rates: Rates) -> float:
    return round(sum(rates), 9)


# The printed tables.


class Pool:
    """Replicates on the cores there are."""

    def __init__(self, executor: ProcessPoolExecutor, setup: Setup, replicates: int) -> None:
        self.executor = executor
        self.setup = setup
        self.replicates = replicates

    def decisions(self, rule: str, kind: str) -> list[Decided]:
        return self._run(functools.partial(decide, rule, kind, self.setup), self.replicates)

    def trainings(self, rule: str) -> list[Trained]:
        return self._run(functools.partial(train, rule, self.setup), self._fewer)

    @property
    def _fewer(self) -> int:
        return max(50, self.replicates * 2 // 5)

    def _run(self, one: Callable[[int], T], replicates: int) -> list[T]:
        return list(self.executor.map(one, range(replicates), chunksize=10))


def share(flags: Iterable[bool]) -> float:
    return statistics.fmean(flags)


def print_rules(pool: Pool, rules: Sequence[str]) -> None:
    setup = pool.setup
    print(f"One decision, {setup.tasks} tasks, {setup.population} noise: share accepted.")
    print("Samples: candidate + incumbent.")
    print(f"{'rule':<24}", *(f"{kind:>8}" for kind in EDITS), "  null cost  small cost")
    for rule in rules:
        results = {kind: pool.decisions(rule, kind) for kind in EDITS}
        row = [f"{share(d.accepted for d in results[kind]):8.3f}" for kind in EDITS]
        cost = [
            f"{statistics.fmean(d.candidate for d in results[kind]):5.0f}+"
            f"{statistics.fmean(d.incumbent for d in results[kind]):<4.0f}"
            for kind in ("null", "small")
        ]
        print(f"{rule:<24}", *row, *cost, flush=True)


def print_trainings(pool: Pool, rules: Sequence[str]) -> None:
    print(f"\nA training of {pool.setup.steps} proposals: half change nothing, a quarter harm.")
    print(f"{'rule':<24} {'gain':>7} {'of reachable':>13} {'any false accept':>17} {'rollouts':>9}")
    for rule in rules:
        runs = pool.trainings(rule)
        gain = statistics.fmean(run.gain for run in runs)
        reachable = statistics.fmean(run.reachable for run in runs)
        false = share(run.false_accepts > 0 for run in runs)
        rollouts = statistics.fmean(run.rollouts for run in runs)
        print(
            f"{rule:<24} {gain:+7.3f} {gain / reachable:>13.0%} {false:>17.3f} {rollouts:>9.0f}",
            flush=True,
        )


def print_speed(tasks: int = 1000) -> None:
    """Time that the gate itself takes for each of its batches."""
    rng = random.Random(0)
    p = suite("agent", tasks, rng)
    q = lift(p, 0.05, rng)
    gate = make_gate("sequential", [GateTask(f"{i:05d}") for i in range(tasks)])
    spent = []
    while True:
        started = time.perf_counter()
        asked = gate.ask()
        waiting = time.perf_counter()
        if isinstance(asked, Verdict):
            break
        samples = []
        for draw in asked:
            passed = rng.random() < (q if draw.arm == CANDIDATE else p)[int(draw.task)]
            samples.append(Sample(draw, passed, float(passed)))
        told = time.perf_counter()
        gate.tell(samples)
        spent.append(((waiting - started) + (time.perf_counter() - told), len(asked)))
    ours = sorted(seconds for seconds, _ in spent)
    seconds, draws = max(spent)
    print(
        f"{tasks} tasks, {len(ours)} batches: median {1000 * statistics.median(ours):.1f} ms a "
        f"batch, most {1000 * seconds:.1f} ms (a batch of {draws} samples)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--population", choices=list(POPULATIONS), default="agent")
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rules", default="", help="only rules whose name contains this")
    parser.add_argument("--speed", action="store_true")
    args = parser.parse_args()
    if args.speed:
        print_speed()
        return
    setup = Setup(args.population, args.tasks, args.steps, args.seed)
    with ProcessPoolExecutor() as executor:
        pool = Pool(executor, setup, args.replicates)
        rules = [rule for rule in RULES if args.rules in rule]
        print_rules(pool, rules)
        print_trainings(pool, rules)


if __name__ == "__main__":
    main()
