"""The rules that ``verdict.py`` compares: our gate, driven from a simulator, and those of peers.

In a world task i passes with probability p[i] under the incumbent and q[i] under the candidate, and
every rollout is an independent draw. No model is called. ``reference`` and ``final_reference``
drive our gate from a simulator that knows only functions ``cand(i)`` and ``inc(i)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_skillopt.gate.data import (
    CANDIDATE,
    INCUMBENT,
    TAPE,
    GateOptions,
    GateTask,
    Sample,
    Searched,
    Verdict,
)
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.search.extensions import make_gate

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from pytest_skillopt.gate.data import Arm, Draw

Rates = list[float]

AGENT = [(0.40, 12, 1), (0.25, 1, 12), (0.35, 1.5, 1.5)]
"""Weight and parameters of each beta component of the pass rates, which have the run-to-run spread
of published agent runs (1.5 points on 500 tasks, arXiv 2602.07150)."""


def suite(n: int, rng: random.Random) -> Rates:
    """Pass rates of ``n`` tasks under the incumbent."""
    picks = rng.choices(AGENT, [weight for weight, _, _ in AGENT], k=n)
    return [rng.betavariate(a, b) for _, a, b in picks]


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


def ours(name: str) -> Rule:
    """One of our gates, with a store of samples as the sampler has it."""

    def rule(world: World, memory: dict[str, Any]) -> bool:
        return drive(name, len(world.p), world.roll, memory).accepted

    return rule


def drive(
    name: str,
    n: int,
    roll: Callable[[Arm, int], bool],
    memory: dict[str, Any],
) -> Verdict:
    """Run a decision; ``memory`` holds the incumbent's samples and the number of decisions."""
    ids = [f"{i:05d}" for i in range(n)]
    store: dict[tuple[Arm, str, str, int], bool] = memory.setdefault("store", {})
    number = memory["decisions"] = memory.get("decisions", 0) + 1
    gate = make_gate(name, [GateTask(i) for i in ids], decision=number)
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
    return drive("sequential", n, Simulator(n, cand, inc).roll, state).accepted


@dataclass
class Simulator:
    """Rolls one task at a time, under the candidate or under the incumbent."""

    n: int
    """Number of tasks."""
    cand: Callable[[int], int]
    inc: Callable[[int], int]

    def roll(self, arm: Arm, task: int) -> bool:
        return bool(self.cand(task) if arm == CANDIDATE else self.inc(task))


EXPECTED = 0.3
"""Lift that is expected of a target if nothing else is said."""


@dataclass
class Expectations:
    """Expectations of a search before the decision."""

    held_out: Sequence[int] = ()
    """Tasks that it has not seen."""
    targets: Sequence[int] = ()
    """Tasks on which it expects a change, if ``lift`` does not say it for each task; without
    either there was no search."""
    prior: float = 1.0
    """E-value of its bets."""
    lift: Sequence[float] | None = None
    """Its expected lift of each task."""

    def expected(self, n: int) -> dict[int, float]:
        """Return the expected lift by task."""
        if self.lift is not None or not self.targets:
            return dict(enumerate(self.lift or ()))
        train = set(range(n)) - set(self.held_out)
        return dict.fromkeys(train, 0.0) | dict.fromkeys(self.targets, EXPECTED)


def final_reference(  # noqa: PLR0913 - the form in which simulators outside of this file call it
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
    """Check if the decision of a default training accepts; ``cap`` as in ``final_verdict``."""
    expectations = Expectations(held_out, targets, prior, lift)
    return final_verdict(Simulator(n, cand, inc), expectations, cap)[0].accepted


def final_verdict(
    simulator: Simulator, expectations: Expectations, cap: int, *, repeats: bool = False
) -> tuple[Verdict, int]:
    """Return the verdict of a default training, and how many rounds it took.

    Args:
        simulator: rolls the tasks.
        expectations: those of the search.
        cap: samples that may be taken; 0 without a cap.
        repeats: whether the gate is told that the model repeats its replies.
    """
    ids = [f"{i:05d}" for i in range(simulator.n)]
    lift = tuple((ids[i], change) for i, change in expectations.expected(simulator.n).items())
    searched = None
    if lift:
        searched = Searched(lift, math.log(expectations.prior), repeats=repeats)
    gate_options = GateOptions(
        final=True,
        held_out=tuple(ids[i] for i in expectations.held_out),
        budget=cap or None,
        searched=searched,
    )
    rounds = 0

    def answer(draws: Sequence[Draw]) -> list[Sample]:
        nonlocal rounds
        rounds += 1
        rolled = [simulator.roll(draw.arm, int(draw.task)) for draw in draws]
        return [Sample(d, won, float(won)) for d, won in zip(draws, rolled, strict=True)]

    gate = make_gate("sequential", [GateTask(i) for i in ids], gate_options)
    return run_gate(gate, answer), rounds


def cached(world: World, memory: dict[str, Any]) -> bool:
    """SkillOpt: one sample a task, greater than the score with which the incumbent was accepted."""
    if "score" not in memory:
        memory["score"] = sum(world.passes(INCUMBENT, 1))
    score = sum(world.passes(CANDIDATE, 1))
    accepted: bool = score > memory["score"]
    if accepted:
        memory["score"] = score
    return accepted


def twice(world: World, memory: dict[str, Any]) -> bool:
    """SkillOpt-Sleep: greater than a fresh sample of the incumbent, two times."""
    baseline = sum(world.passes(INCUMBENT, 1))
    return all(sum(world.passes(CANDIDATE, 1)) > baseline for _ in range(2))


def minibatch(world: World, memory: dict[str, Any]) -> bool:
    """GEPA: a minibatch of 3 must improve, then one pass over the suite must beat the best one."""
    if "score" not in memory:
        memory["score"] = sum(world.passes(INCUMBENT, 1))
    batch = world.rng.sample(range(len(world.p)), 3)
    new, old = (sum(world.roll(arm, i) for i in batch) for arm in (CANDIDATE, INCUMBENT))
    if new <= old:
        return False
    score = sum(world.passes(CANDIDATE, 1))
    accepted: bool = score > memory["score"]
    if accepted:
        memory["score"] = score
    return accepted


def pace(world: World, memory: dict[str, Any]) -> bool:
    """PACE (arXiv 2606.08106): bet half on the discordant of 250 paired outcomes, alpha 0.05."""
    wealth = 1.0
    tasks = range(len(world.p))
    order = [task for _ in range(-(-250 // len(tasks))) for task in tasks][:250]
    for task in order:
        new = world.roll(CANDIDATE, task)
        old = world.roll(INCUMBENT, task)
        wealth *= 1 + 0.5 * (new - old)
        if wealth >= 20:
            return True
    return False


OURS = "sequential (default)"
PEERS: dict[str, Rule] = {
    "strict K=3": ours("strict"),
    "SkillOpt: K=1 cached": cached,
    "SkillOpt-Sleep: twice": twice,
    "GEPA: minibatch 3 + val": minibatch,
    "PACE: paired e-process": pace,
}
