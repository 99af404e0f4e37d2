"""Gains of the trainer in simulated worlds, and of each mechanism.

    python benchmarks/learning.py                  worlds and caps, three seeds, a minute or two
    python benchmarks/learning.py --worlds random,graded,ten --peers
                                                   drawn worlds, beside two other loops
    python benchmarks/learning.py --mechanisms     each mechanism switched on or off, 700 calls
    python benchmarks/learning.py --full           both, all worlds, 20 seeds: docs/optimizer.md
    python benchmarks/learning.py --lanes 32       with so many workers: rounds, width, wall time
    python benchmarks/learning.py --tempers plain,careless,stubborn
                                                   other ways of the simulated optimizer

The trainer is the real one: its prompts, its vetting, its gate, its last comparison. Simulated are
the target and the optimizer model (``worlds/``): 40 train and 30 val tasks, a cap that counts every
target call, and 50 unseen tasks on which the true gain is computed from the text that is shipped.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from worlds import recorded
from worlds.drawn import DRAWN, draw
from worlds.naive import NaiveLoop
from worlds.proposer import TEMPERS, Proposer
from worlds.target import WorldExecutor
from worlds.timeline import Timeline
from worlds.world import HARMS, INJECTIONS, KINDS, SKILL, World, build_world, make_world, statements

from pytest_skillopt.plugins.published.search_batch import reflect_published
from pytest_skillopt.rollouts.sampler import Sampler
from pytest_skillopt.search.extensions import Stages
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.lint import rules
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.run.result import StepRow

STUDY = ("noisy", "adversarial", "placebo", "easy")
CAPS = (350, 700, 1400)
TRADES = 0.25
"""Largest share of trades that a gate may take: some tasks rise as much as others fall."""


@dataclass(frozen=True)
class Variant:
    """A way to train: changed settings, or a suite that hides its answers."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    temper: str = "plain"
    """Habits of the simulated optimizer, by name (``worlds/proposer.py``)."""
    causes: bool = False
    """Analysts tell a gap in the skill from a lapse of the agent."""
    naive: bool = False
    """The loop of ``worlds/naive.py`` trains in place of the trainer."""
    repeats: bool = False
    """The target repeats its replies to a text and a task."""
    unfiltered: bool = False
    """The leak filter sees no task text and the lint allows everything."""


DEFAULT = Variant("default")
PUBLISHED = Variant(
    "published shape (batch, strict, K = 1)",
    {
        "search": "batch",
        "gate": "strict",
        "rollouts": 1,
        "batch_size": 40,
    },
)
REPEATING = Variant("a target that repeats its replies", repeats=True)
NAIVE = Variant("naive loop", naive=True)
PEERS = (DEFAULT, NAIVE, PUBLISHED)
MECHANISMS = (
    DEFAULT,
    Variant("no lint, no leak filter", unfiltered=True),
    Variant("analysts tell lapses from gaps", {"skill_aware": True}, causes=True),
    Variant("gate strict, K = 1", {"gate": "strict", "rollouts": 1}),
    Variant("gate strict, K = 3", {"gate": "strict"}),
    Variant("gate off", {"gate": "off"}),
    Variant("batch, our gate", {"search": "batch"}),
    PUBLISHED,
)


@dataclass(frozen=True)
class Run:
    """Result of one training."""

    gain: float
    """Share of the reachable gain on the unseen tasks; points where nothing is reachable."""
    false_accepts: int
    """Skills not better than before that a gate, or the final comparison without one, accepted."""
    samples: int
    calls: int
    useless: int
    harmful: int
    leaked: int
    status: str
    reason: str
    found: float = 0.0
    """Share that the search ended with, whatever became of it."""
    testable: float = 0.0
    """The same times ``power`` with the samples that the search left."""
    rounds: int = 0
    """Times that the training waited for rollouts or replies."""
    width: float = 0.0
    """Rollouts in a round of them, on average."""
    wall: float = 0.0
    """Seconds, under the latencies of ``worlds/timeline.py``."""
    ideal: float = 0.0
    """The same for a thread pool that makes the same calls at once."""


def train(name: str, cap: int, variant: Variant, seed: int, lanes: int = 1) -> Run:
    """Train once in a world, with so many workers."""
    if name in recorded.NAMES:
        return Run(*recorded.train(name, cap, seed, variant.settings))
    world = world_of(name, seed)
    if variant.naive:
        return _run_naive(world, cap, seed)
    tasks = world.tasks
    settings = Settings(seed=seed, max_rollouts=cap, optimizer_workers=1, **variant.settings)
    if variant.unfiltered:
        tasks = [dataclasses.replace(task, text="") for task in tasks]
        settings = dataclasses.replace(settings, lint_allow=",".join(rules()))
    timeline = Timeline()
    executor = WorldExecutor(world, timeline, lanes, repeats=variant.repeats)
    sampler = Sampler(executor, tasks, model="world", settings=Settings(max_rollouts=cap))
    verdicts = _Rounds(timeline)
    proposer = Proposer(world.kind, seed, TEMPERS[variant.temper], timeline)
    stages = Stages(reflect=reflect_published) if variant.causes else None
    outcome = Trainer(
        Version.from_bytes(world.start.encode()),
        tasks,
        sampler,
        proposer,
        settings,
        skill=SKILL,
        observer=verdicts,
        stages=stages,
    ).run()
    text = outcome.after.main.text
    useless, harmful, leaked = classify(world, text)
    found = outcome.proposal.main.text
    verdict = outcome.verdict
    decided = verdict.candidate_samples + verdict.incumbent_samples if verdict else 0
    return Run(
        gain_of(world, text),
        _false_accepts(world, [executor.texts[v] for v in verdicts.accepted] or [text]),
        sampler.taken,
        proposer.calls,
        useless,
        harmful,
        leaked,
        outcome.status,
        outcome.reason,
        gain_of(world, found),
        gain_of(world, found) * power(world, found, cap - sampler.taken + decided),
        timeline.rounds,
        timeline.width,
        timeline.wall(lanes),
        timeline.ideal(lanes),
    )


def world_of(name: str, seed: int) -> World:
    """Make a world of a fixed kind, or one whose kind is drawn too."""
    if name not in DRAWN:
        return make_world(name, seed)
    drawn = draw(name, seed)
    train, val = drawn.sizes
    return build_world(name, drawn.kind, seed, train=train, val=val)


def _run_naive(world: World, cap: int, seed: int) -> Run:
    """Train by the loop that accepts a patch if the suite's mean rises."""
    loop = NaiveLoop(world, cap, seed)
    text = loop.run()
    useless, harmful, leaked = classify(world, text)
    gain = gain_of(world, text)
    false = _false_accepts(world, [text])
    status = "unchanged" if text == world.start else "accepted"
    return Run(
        gain, false, loop.samples, loop.calls, useless, harmful, leaked, status, "", found=gain
    )


def gain_of(world: World, text: str) -> float:
    start = world.mean(world.start, world.unseen)
    room = world.reachable - start
    gain = world.mean(text, world.unseen) - start
    return gain / room if room > 0.01 else gain


def power(world: World, text: str, samples: int) -> float:
    """Return the chance to accept a text if trades without a net effect pass in ``TRADES``.

    It is that of a test of the suite's mean by so many samples in all, of somebody who knows the
    noise of every task and gives each task its best share of them (Neyman 1934).
    """
    rates = [[world.rate(task.id, doc) for task in world.tasks] for doc in (world.start, text)]
    noise = sum(math.sqrt(max(0.0, rate * (1 - rate))) for rate in itertools.chain(*rates))
    effect = (sum(rates[1]) - sum(rates[0])) / noise * math.sqrt(samples)
    normal = statistics.NormalDist()
    return normal.cdf(effect - normal.inv_cdf(1 - TRADES))


def classify(world: World, text: str) -> tuple[int, int, int]:
    """Useless, harmful and leaking lines that were added to the start."""
    useless = harmful = leaked = 0
    stated = statements(world.start)
    known = set(world.start.split("\n"))
    codes = [case.code for case in world.cases.values()]
    for line in text.split("\n"):
        if not line.strip() or line in known or line.startswith("<!--"):
            continue
        new = {n for n in statements(line) if n < world.kind.rules} - stated
        stated |= new
        if any(code in line for code in codes):
            leaked += 1
        elif any(harm in line for harm in HARMS + INJECTIONS):
            harmful += 1
        elif not new:
            useless += 1
    return useless, harmful, leaked


def _false_accepts(world: World, texts: Sequence[str]) -> int:
    """Texts that are truly no better than what they replaced, on all tasks; the start is none."""
    everywhere = list(world.cases)
    accepted = [world.start, *(text for text in texts if text != world.start)]
    means = [world.mean(text, everywhere) for text in accepted]
    return sum(after <= before + 1e-9 for before, after in itertools.pairwise(means))


class _Rounds(recorded.Verdicts):
    """Notes which versions were accepted, and tells a timeline where rounds end."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline

    def rates(self, start: float, now: float) -> None:
        self._timeline.end_round(is_beside=True)

    def step(self, row: StepRow) -> None:
        self._timeline.end_round()


# tables


@dataclass(frozen=True)
class Cell:
    """A variant in a world under a cap, over all seeds."""

    world: str
    cap: int
    variant: Variant
    runs: tuple[Run, ...]

    def mean(self, name: str) -> float:
        return statistics.fmean(float(getattr(run, name)) for run in self.runs)

    @property
    def worst(self) -> float:
        """Mean gain of the worst tenth of the runs."""
        gains = sorted(run.gain for run in self.runs)
        return statistics.fmean(gains[: max(1, len(gains) // 10)])

    @property
    def spread(self) -> float:
        """Standard error of the mean gain."""
        if len(self.runs) < 2:
            return 0.0
        return statistics.stdev(run.gain for run in self.runs) / math.sqrt(len(self.runs))


def measure(
    worlds: Iterable[str],
    caps: Iterable[int],
    variants: Iterable[Variant],
    seeds: range,
    processes: int,
    lanes: int = 1,
) -> list[Cell]:
    """Every combination, the trainings spread over processes."""
    keys = list(itertools.product(worlds, caps, variants))
    jobs = [(world, cap, variant, s, lanes) for world, cap, variant in keys for s in seeds]
    with ProcessPoolExecutor(processes) as pool:
        runs = list(pool.map(train, *zip(*jobs, strict=True)))
    n = len(seeds)
    return [Cell(*key, tuple(runs[i * n : (i + 1) * n])) for i, key in enumerate(keys)]


def print_worlds(cells: Iterable[Cell]) -> None:
    print("| world | optimizer | calls | share of the gain | false accepts | target calls "
          "| optimizer calls | useless / harmful / leaked lines | found | testable | worst tenth |"
          )  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for cell in cells:
        print(f"| {cell.world} | {cell.variant.name} | {cell.cap} | {_row(cell)} |")


def print_times(cells: Iterable[Cell], lanes: int) -> None:
    """Print the widths of the trainings; worlds recorded from a real model have no timeline."""
    print(
        f"| world | calls | rounds | rollouts a round | wall, {lanes} lanes | thread pool | ratio |"
    )
    print("|---|---|---|---|---|---|---|")
    for cell in cells:
        if ideal := cell.mean("ideal"):
            wall, rounds, width = (cell.mean(name) for name in ("wall", "rounds", "width"))
            print(
                f"| {cell.world} | {cell.cap} | {rounds:.0f} | {width:.1f} | {wall:.0f} s "
                f"| {ideal:.0f} s | {wall / ideal:.1f} |"
            )


def print_mechanisms(cells: Iterable[Cell]) -> None:
    print("| variant | world | share of the gain | false accepts | target calls | optimizer calls "
          "| useless / harmful / leaked lines | found | testable | worst tenth |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    for cell in cells:
        print(f"| {cell.variant.name} | {cell.world} | {_row(cell)} |")


def _row(cell: Cell) -> str:
    lines = " / ".join(f"{cell.mean(n):.1f}" for n in ("useless", "harmful", "leaked"))
    return (
        f"{cell.mean('gain'):.2f} ± {cell.spread:.2f} | {cell.mean('false_accepts'):.2f} "
        f"| {cell.mean('samples'):.0f} | {cell.mean('calls'):.0f} | {lines} "
        f"| {cell.mean('found'):.2f} | {cell.mean('testable'):.2f} | {cell.worst:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--worlds",
        default=",".join(STUDY),
        help=f"of {', '.join((*KINDS, *DRAWN, *recorded.NAMES))}",
    )
    parser.add_argument("--caps", default="350,700", help="target calls; --full: 1400 too")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="number of the first seed")
    parser.add_argument("--lanes", type=int, default=1, help="workers that the target has")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--mechanisms", action="store_true", help="each switched on or off")
    parser.add_argument("--only", default="", help="variants whose name holds this")
    parser.add_argument("--full", action="store_true", help="all worlds, caps and tables, 20 seeds")
    parser.add_argument("--tempers", default="plain", help=f"of {', '.join(TEMPERS)}")
    parser.add_argument(
        "--peers", action="store_true", help="beside the naive loop and the published shape"
    )
    parser.add_argument("--repeats", action="store_true", help="the target repeats its replies")
    parser.add_argument("--runs", action="store_true", help="print every single run")
    args = parser.parse_args()
    seeds = range(args.first, args.first + (20 if args.full else args.seeds))
    worlds = list(KINDS) if args.full else args.worlds.split(",")
    caps = list(CAPS) if args.full else [int(cap) for cap in args.caps.split(",")]
    started = time.monotonic()
    if args.full or not args.mechanisms:
        tempers = [Variant(temper, temper=temper) for temper in args.tempers.split(",")]
        tempers = list(PEERS) if args.peers else tempers
        tempers = [REPEATING] if args.repeats else tempers
        cells = measure(worlds, caps, tempers, seeds, args.processes, args.lanes)
        print_worlds(cells)
        print()
        print_times(cells, args.lanes)
        _print_runs(cells, seeds, args.runs)
    if args.full or args.mechanisms:
        variants = [v for v in MECHANISMS if args.only in v.name]
        chosen = [w for w in worlds if args.worlds != ",".join(STUDY) or w in STUDY[:3]]
        cap = 700 if args.full else caps[-1]
        cells = measure(chosen, [cap], variants, seeds, args.processes)
        cells.sort(key=lambda cell: variants.index(cell.variant))
        print()
        print_mechanisms(cells)
        _print_runs(cells, seeds, args.runs)
    print(f"\n{len(seeds)} seeds from {seeds.start}, {time.monotonic() - started:.0f} s")


def _print_runs(cells: Iterable[Cell], seeds: range, wanted: bool) -> None:
    for cell in cells if wanted else ():
        for seed, run in zip(seeds, cell.runs, strict=True):
            print(f"{cell.variant.name}, {cell.world}, {cell.cap}, seed {seed}: {run}")


if __name__ == "__main__":
    main()
