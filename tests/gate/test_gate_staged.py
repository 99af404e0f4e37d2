"""The staged gate: its decisions, and how often they are right."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_skillopt.gate.data import Draw, GateOptions, GateTask, Sample, Verdict
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.gate.staged import StagedGate
from pytest_skillopt.search.stages import make_gate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


Rates = dict[str, float]


def roller(before: Rates, after: Rates, seed: object) -> Callable[[Draw], bool]:
    """Outcomes that depend on the draw alone, as those of the sampler do."""

    def roll(draw: Draw) -> bool:
        rates = after if draw.arm == "candidate" else before
        key = f"{seed}/{draw.arm}/{draw.task}/{draw.stream}/{draw.index}"
        return random.Random(key).random() < rates[draw.task]

    return roll


def answer(draws: Sequence[Draw], roll: Callable[[Draw], bool]) -> list[Sample]:
    return [Sample(draw, passed, float(passed)) for draw in draws for passed in [roll(draw)]]


def judge(
    before: Rates,
    after: Rates,
    seed: object = 0,
    options: GateOptions | None = None,
    *,
    name: str = "staged",
    must_pass: Sequence[str] = (),
    tape: Mapping[str, int] | None = None,
) -> Verdict:
    tasks = [GateTask(task, task in must_pass) for task in before]
    roll = roller(before, after, seed)
    gate = make_gate(name, tasks, options, tape=tape)
    return run_gate(gate, lambda draws: answer(draws, roll))


VETO = GateOptions(veto=True)


def ids(n: int) -> list[str]:
    return [f"test_{i:03d}" for i in range(n)]


def agent_like(n: int, rng: random.Random) -> Rates:
    parts = rng.choices([(12, 1), (1, 12), (1.5, 1.5)], [0.40, 0.25, 0.35], k=n)
    return {task: rng.betavariate(a, b) for task, (a, b) in zip(ids(n), parts, strict=True)}


suites = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1])),
    min_size=1,
    max_size=8,
).map(
    lambda pairs: (
        {task: pair[0] for task, pair in zip(ids(len(pairs)), pairs, strict=True)},
        {task: float(pair[1]) for task, pair in zip(ids(len(pairs)), pairs, strict=True)},
    )
)


# Decisions.


def test_a_fixed_task_is_accepted_and_named() -> None:
    before = dict.fromkeys(ids(10), 1.0) | {"test_003": 0.0}
    verdict = judge(before, dict.fromkeys(before, 1.0))
    assert verdict.accepted
    assert verdict.names("fixed") == ("test_003",)
    assert verdict.reason.startswith(
        "the suite's mean rose from 90.0 % to 100.0 % (+10.0 points), 1 task fixed (test_003)"
    )
    assert (verdict.before, verdict.after) == (0.9, 1.0)
    assert verdict.e_value is not None
    assert verdict.e_value >= 20


ONE_BREAKS = (
    dict.fromkeys(ids(10), 0.0) | {"test_009": 1.0},
    dict.fromkeys(ids(10), 1.0) | {"test_009": 0.0},
)


def test_a_broken_task_is_named_first_and_may_be_outweighed() -> None:
    verdict = judge(*ONE_BREAKS)
    assert verdict.accepted
    assert verdict.names("broken") == ("test_009",)
    assert verdict.reason.startswith("broken: test_009 (passed")
    assert "net effect +" in verdict.reason


@pytest.mark.parametrize("how", [{"options": VETO}, {"must_pass": ["test_009"]}])
def test_a_broken_task_rejects_whatever_else_improves(how: dict[str, Any]) -> None:
    """With the setting, and where it must pass."""
    verdict = judge(*ONE_BREAKS, **how)
    assert verdict.decision == "rejected"
    assert verdict.names("broken") == ("test_009",)
    assert "broken: test_009 (passed" in verdict.reason


def test_what_is_fixed_has_to_outweigh_what_breaks() -> None:
    """Of ten tasks five are fixed and so many others break."""
    before = dict.fromkeys(ids(10), 1.0) | dict.fromkeys(ids(5), 0.0)
    for broken, decision in ((2, "accepted"), (5, "rejected")):
        after = dict.fromkeys(ids(10), 1.0) | dict.fromkeys(ids(10)[-broken:], 0.0)
        verdict = judge(before, after)
        assert verdict.decision == decision, broken
    assert verdict.reason.startswith("broken: ")
    assert "on balance it is not credible that the suite did" in verdict.reason


def test_nothing_to_improve_costs_no_sample_of_the_candidate() -> None:
    before = dict.fromkeys(ids(20), 1.0)
    verdict = judge(before, before)
    assert verdict.decision == "rejected"
    assert verdict.candidate_samples == 0
    assert verdict.after is None


def test_only_tasks_that_one_pass_could_make_promising_are_screened() -> None:
    passed = {"test_000": 0, "test_001": 1, "test_002": 2, "test_003": 3}
    gate = StagedGate([GateTask(task) for task in passed])
    tape = gate.ask()
    assert isinstance(tape, tuple)
    gate.tell(answer(tape, lambda draw: draw.index < passed[draw.task]))
    screen = gate.ask()
    assert isinstance(screen, tuple)
    assert screen == tuple(Draw("candidate", t, "screen", 0) for t in ("test_000", "test_001"))


def test_a_task_that_must_pass_blocks_after_fewer_failures() -> None:
    before = dict.fromkeys(ids(40), 0.0) | {"test_039": 1.0}
    after = dict.fromkeys(ids(40), 1.0) | {"test_039": 0.0}

    def failures(*must_pass: str) -> int:
        verdict = judge(before, after, must_pass=must_pass, options=VETO)
        assert verdict.decision == "rejected"
        return verdict.tasks[39].candidate_n

    assert failures("test_039") < failures()


def test_evidence_of_trials_spares_the_screen() -> None:
    before = dict.fromkeys(ids(10), 0.5)
    after = dict.fromkeys(before, 1.0)
    verdict = judge(before, after, options=GateOptions(prior=1e6))
    assert verdict.accepted
    assert all(task.candidate_n <= 3 for task in verdict.tasks)


def test_after_an_acceptance_the_confirmation_rounds_are_the_tape() -> None:
    before = dict.fromkeys(ids(5), 1.0) | {"test_000": 0.0}
    roll = roller(before, dict.fromkeys(before, 1.0), 0)
    gate = make_gate("staged", [GateTask(task) for task in before])
    seen: set[Draw] = set()

    def take(draws: Sequence[Draw]) -> list[Sample]:
        assert not seen & set(draws)
        seen.update(draws)
        return answer(draws, roll)

    assert run_gate(gate, take).accepted
    confirmed = {d for d in seen if d.arm == "candidate" and d.stream == "tape"}
    assert gate.tape("candidate") == dict.fromkeys(ids(5)[1:], 3)
    assert len(confirmed) == 12
    assert all(gate.tape("incumbent")[task] >= 3 for task in before)


def test_a_tape_is_asked_for_again_by_its_indices_and_topped_up() -> None:
    gate = make_gate("staged", [GateTask("a"), GateTask("b")], tape={"a": 5})
    asked = gate.ask()
    assert isinstance(asked, tuple)
    assert asked == tuple(
        [Draw("incumbent", "a", "tape", i) for i in range(5)]
        + [Draw("incumbent", "b", "tape", i) for i in range(3)]
    )


def test_a_mean_that_did_not_rise_is_looked_at_again() -> None:
    """One task is fixed for certain; the noise of another one hides it at first."""
    before = dict.fromkeys(ids(4), 1.0) | {"test_000": 0.0}

    def roll(draw: Draw) -> bool:
        if draw.task == "test_000":
            return draw.arm == "candidate"
        # Three unlucky rounds of the candidate's confirmation, then none any more.
        return not (draw.arm == "candidate" and draw.stream == "tape" and draw.index < 1)

    gate = make_gate("staged", [GateTask(task) for task in before])
    verdict = run_gate(gate, lambda draws: answer(draws, roll))
    assert verdict.accepted
    assert verdict.before is not None
    assert verdict.after is not None
    assert verdict.after > verdict.before


def test_alpha_spent_over_a_run_adds_up_to_no_more() -> None:
    options = GateOptions(alpha_run=0.1)
    spent = [options.alpha_at(t) for t in range(10_000)]
    assert spent == sorted(spent, reverse=True)
    assert 0.0999 < math.fsum(spent) < 0.1


def test_scores_are_evidence_with_the_soft_metric() -> None:
    def take(draws: Sequence[Draw]) -> list[Sample]:
        return [Sample(d, False, 0.95 if d.arm == "candidate" else 0.05) for d in draws]

    tasks = [GateTask(task) for task in ids(5)]
    assert run_gate(make_gate("staged", tasks, GateOptions(metric="soft")), take).accepted
    assert not run_gate(make_gate("staged", tasks), take).accepted


# The same decisions as an independent, plain form of the rule.


def log_likelihood_ratio(s: float, k: int, t: float, j: int) -> float:
    grid = (0.02, 0.10, 0.25, 0.50, 0.75, 0.90, 0.98)
    pairs = [(a, b) for a in grid for b in grid if b > a + 0.39]
    weight = sum(b - a for a, b in pairs)
    top = sum(
        (b - a) / weight * b**s * (1 - b) ** (k - s) * a**t * (1 - a) ** (j - t) for a, b in pairs
    )
    p = (s + t) / (k + j) if k + j else 0.5
    return math.log(top) - math.log(p ** (s + t) * (1 - p) ** (k + j - s - t))


def change_by_hand(s: float, k: int, t: float, j: int) -> tuple[float, float]:
    """Mean and variance of the change of a rate: most stay, large moves are likelier than small."""
    rates = {0.02: 0.2, 0.10: 0.1, 0.25: 0.1, 0.50: 0.15, 0.75: 0.1, 0.90: 0.1, 0.98: 0.25}
    far = sum(rates[a] * rates[b] * abs(b - a) for a in rates for b in rates)
    posterior = {
        (a, b): (0.9 * rates[a] if a == b else 0.1 * rates[a] * rates[b] * abs(b - a) / far)
        * (b**s * (1 - b) ** (k - s) * a**t * (1 - a) ** (j - t))
        for a in rates
        for b in rates
    }
    total = sum(posterior.values())
    mean = sum(w * (b - a) for (a, b), w in posterior.items()) / total
    return mean, sum(w * (b - a) ** 2 for (a, b), w in posterior.items()) / total - mean**2


def plain_staged(tasks: Sequence[str], roll: Callable[[Draw], bool]) -> bool:
    drawn: dict[tuple[str, str, str], list[bool]] = {}

    def draw(arm: str, task: str, stream: str) -> None:
        old = drawn.setdefault((arm, task, stream), [])
        old.append(roll(Draw(arm, task, stream, len(old))))  # type: ignore[arg-type]

    def old(task: str) -> list[bool]:
        return drawn.get(("incumbent", task, "tape"), [])

    def new(task: str) -> list[bool]:
        return drawn.get(("candidate", task, "screen"), []) + drawn.get(
            ("candidate", task, "tape"), []
        )

    def up(task: str) -> float:
        return log_likelihood_ratio(sum(new(task)), len(new(task)), sum(old(task)), len(old(task)))

    def down(task: str) -> float:
        return log_likelihood_ratio(sum(old(task)), len(old(task)), sum(new(task)), len(new(task)))

    def both(task: str, stream: str = "screen") -> None:
        draw("candidate", task, stream)
        if len(old(task)) < 32:
            draw("incumbent", task, "tape")

    def enough() -> bool:
        n = len(tasks)
        return math.prod(1 - 1 / n + math.exp(up(task)) / n for task in tasks) >= 20

    def follow_suspects() -> None:
        while suspects := [t for t in tasks if 0.3 <= math.exp(down(t)) < 30 and len(new(t)) < 32]:
            for task in suspects:
                both(task)

    def change(task: str) -> tuple[float, float]:
        return change_by_hand(sum(new(task)), len(new(task)), sum(old(task)), len(old(task)))

    def net_score() -> float:
        changes = [change(task) for task in tasks]
        return sum(m for m, _ in changes) / math.sqrt(sum(v for _, v in changes) + 1e-9)

    def weigh() -> bool:
        left = 3 * len(tasks)
        while -0.5 < net_score() < 1.3 and (size := min(left, max(2, len(tasks) // 4)) // 2):
            doubt = sorted(
                (t for t in tasks if len(new(t)) < 32),
                key=lambda t: -change(t)[1] / (1 + len(new(t))),
            )
            for task in doubt[:size]:
                both(task, "tape")
                left -= 2
        return net_score() >= 1.0

    def gain() -> float:
        return sum(sum(new(t)) / len(new(t)) - sum(old(t)) / len(old(t)) for t in tasks)

    for task in tasks:
        for _ in range(3):
            draw("incumbent", task, "tape")
    for task in tasks:
        if sum(old(task)) < 2:
            draw("candidate", task, "screen")
    while not enough():
        promising = [t for t in tasks if 0 < len(new(t)) < 32 and math.exp(up(t)) >= 0.3]
        if not promising:
            return False
        for task in promising:
            both(task)
    for rounds in (1, 3):
        for task in tasks:
            while len(new(task)) < rounds:
                draw("candidate", task, "tape")
        follow_suspects()
    return weigh() and gain() > 1e-9


@pytest.mark.parametrize("seed", range(60))
def test_decides_as_the_plain_form_does(seed: int) -> None:
    rng = random.Random(seed)
    before = agent_like(16, rng)
    after = dict(before)
    for task in rng.sample(sorted(before), seed % 5):
        after[task] = rng.choice([0.05, 0.95])
    assert judge(before, after, seed).accepted == plain_staged(
        sorted(before), roller(before, after, seed)
    )


# Properties.


@given(suites, st.integers(0, 1000))
@settings(max_examples=60)
def test_never_accepts_without_strict_improvement(suite: tuple[Rates, Rates], seed: int) -> None:
    verdict = judge(*suite, seed)
    if verdict.accepted:
        assert verdict.before is not None
        assert verdict.after is not None
        assert verdict.after > verdict.before
        assert all(task.candidate_n >= 3 for task in verdict.tasks)


@given(suites, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_order_of_tasks_and_of_arrival_change_nothing(
    suite: tuple[Rates, Rates], chance: random.Random
) -> None:
    roll = roller(*suite, 7)
    tasks = [GateTask(task) for task in suite[0]]
    expected = run_gate(make_gate("staged", tasks), lambda draws: answer(draws, roll))

    chance.shuffle(tasks)
    gate = make_gate("staged", tasks)
    while not isinstance(asked := gate.ask(), Verdict):
        samples = answer(asked, roll)
        chance.shuffle(samples)
        while samples:
            portion = chance.randint(1, len(samples))
            gate.tell(samples[:portion])
            if portion < len(samples):
                assert gate.ask() == asked
            samples = samples[portion:]
    assert asked == expected


@given(suites, st.integers(0, 1000))
@settings(max_examples=40)
def test_evidence_is_the_same_with_the_roles_swapped(suite: tuple[Rates, Rates], seed: int) -> None:
    before, after = suite
    there = judge(before, after, seed, name="strict")

    def take(draws: Sequence[Draw]) -> list[Sample]:
        roll = roller(before, after, seed)
        samples = []
        for draw in draws:
            arm = "candidate" if draw.arm == "incumbent" else "incumbent"
            passed = roll(Draw(arm, draw.task, draw.stream, draw.index))  # type: ignore[arg-type]
            samples.append(Sample(draw, passed))
        return samples

    back = run_gate(make_gate("strict", [GateTask(task) for task in before]), take)
    assert [t.e_up for t in there.tasks] == [t.e_down for t in back.tasks]
    assert there.names("fixed") == back.names("broken")
    assert not (there.accepted and back.accepted)


@given(suites)
@settings(max_examples=30)
def test_a_candidate_that_always_passes_is_never_called_broken(
    suite: tuple[Rates, Rates],
) -> None:
    before, _ = suite
    assert not judge(before, dict.fromkeys(before, 1.0)).names("broken")


# Statistics, with fixed seeds.


def accepted(kind: Callable[[Rates, random.Random], Rates], trials: int, **named: str) -> float:
    count = 0
    for seed in range(trials):
        rng = random.Random(seed)
        before = agent_like(40, rng)
        count += judge(before, kind(before, rng), seed, **named).accepted  # type: ignore[arg-type]
    return count / trials


def fix(p: Rates, rng: random.Random) -> Rates:
    weak = [task for task, rate in p.items() if rate < 0.2]
    return p | dict.fromkeys(rng.sample(weak, min(2, len(weak))), 0.95)


def break_one(p: Rates, rng: random.Random) -> Rates:
    return p | {rng.choice([task for task, rate in p.items() if rate > 0.8]): 0.05}


def test_chance_is_not_accepted() -> None:
    assert accepted(lambda p, rng: p, 80) <= 0.02


def test_harm_is_not_accepted() -> None:
    assert accepted(break_one, 60) == 0


def test_two_fixed_tasks_are_nearly_always_seen() -> None:
    assert accepted(fix, 60) >= 0.85


def test_worst_homogeneous_suite_keeps_the_bound() -> None:
    flat = dict.fromkeys(ids(20), 0.45)
    assert sum(judge(flat, flat, seed).accepted for seed in range(120)) / 120 <= 0.05


@pytest.mark.addon("published")
def test_a_thin_gain_needs_the_broad_gate() -> None:
    before = dict.fromkeys(ids(60), 0.45)
    after = dict.fromkeys(before, 0.70)
    broad = GateOptions(broad=True)
    assert judge(before, after, 3, broad).accepted
    assert sum(judge(before, before, seed, broad).accepted for seed in range(20)) <= 2
