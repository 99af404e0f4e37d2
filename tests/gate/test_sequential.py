"""The default gate: its decisions, what they cost, and how often they are right."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from gate_draws import luck, options_with
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.gate.data import (
    Draw,
    GateOptions,
    GateTask,
    Sample,
    Verdict,
)
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.gate.sequential import DefaultGate
from pytest_skillopt.model.purse import Amounts, Purse
from pytest_skillopt.model.types import Usage
from pytest_skillopt.search.extensions import make_gate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


Rates = dict[str, float]


def roller(before: Rates, after: Rates, seed: object) -> Callable[[Draw], bool]:
    """Return outcomes that depend only on the draw, as those of the sampler do."""

    def roll(draw: Draw) -> bool:
        rates = after if draw.arm == "candidate" else before
        key = f"{seed}/{draw.arm}/{draw.task}/{draw.stream}/{draw.index}"
        return luck(key) < rates[draw.task]

    return roll


def answer(draws: Sequence[Draw], roll: Callable[[Draw], bool]) -> list[Sample]:
    return [Sample(draw, passed, float(passed)) for draw in draws for passed in [roll(draw)]]


def judge(
    before: Rates,
    after: Rates,
    seed: object = 0,
    options: GateOptions | None = None,
    *,
    must_pass: Sequence[str] = (),
    rounds: list[list[Draw]] | None = None,
    **told: Any,
) -> Verdict:
    """The verdict; ``rounds`` gets what was asked for, ``told`` are options."""
    tasks = [GateTask(task, task in must_pass) for task in before]
    roll = roller(before, after, seed)
    gate = make_gate("sequential", tasks, options_with(options, **told))

    def take(draws: Sequence[Draw]) -> list[Sample]:
        if rounds is not None:
            rounds.append(list(draws))
        return answer(draws, roll)

    return run_gate(gate, take)


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
    verdict = judge(before, dict.fromkeys(before, 1.0), lift=expect("test_003", of=ids(10)))
    assert verdict.accepted
    assert verdict.names("fixed") == ("test_003",)
    assert verdict.reason.startswith(
        "the suite's mean rose from 90.0 % to 100.0 % (+10.0 points), 1 task fixed (test_003); "
        "chance moves the mean by "
    )
    assert (verdict.gate, verdict.before, verdict.after) == ("sequential", 0.9, 1.0)
    assert verdict.e_value == 1.0


def test_figures_of_a_reason_do_not_contradict_and_no_estimate_is_certain() -> None:
    """The rise is that of the two rates as they are written."""
    for seed in range(12):
        rates = dict.fromkeys(ids(14), 0.3)
        reason = judge(rates, dict.fromkeys(rates, 0.97), seed).reason
        assert "the chance of a rise is more than 99 %" in reason
        found = re.search(r"from ([\d.]+) % to ([\d.]+) % \(\+([\d.]+) points\)", reason)
        assert found, reason
        before, after, points = map(float, found.groups())
        assert after - before == pytest.approx(points), reason


ONE_BREAKS = (
    dict.fromkeys(ids(10), 0.0) | {"test_009": 1.0},
    dict.fromkeys(ids(10), 1.0) | {"test_009": 0.0},
)


def test_a_broken_task_is_named_first_and_may_be_outweighed() -> None:
    """It must have been sampled often enough to be credible, as where it looks like a trade."""
    before = dict.fromkeys(ids(12), 0.5) | {"test_011": 1.0, **dict.fromkeys(ids(3), 0.0)}
    after = dict.fromkeys(ids(12), 0.5) | {"test_011": 0.0, **dict.fromkeys(ids(3), 1.0)}
    verdicts = [judge(before, after, seed) for seed in range(20)]
    named = [v for v in verdicts if v.accepted and v.names("broken") == ("test_011",)]
    assert named
    assert all(verdict.reason.startswith("broken: test_011 (passed") for verdict in named)


def test_a_broken_task_that_must_pass_rejects_whatever_else_improves() -> None:
    assert judge(*ONE_BREAKS).accepted
    verdict = judge(*ONE_BREAKS, must_pass=["test_009"])
    assert verdict.decision == "rejected"
    assert "broken: test_009 (passed" in verdict.reason


def test_what_is_fixed_has_to_outweigh_what_breaks() -> None:
    """Five of ten tasks are fixed, and one or all of the other five break."""
    before = dict.fromkeys(ids(10), 0.95) | dict.fromkeys(ids(5), 0.05)
    for broken, decision in ((1, "accepted"), (5, "rejected")):
        after = dict.fromkeys(ids(10), 0.95) | dict.fromkeys(ids(10)[-broken:], 0.05)
        verdict = judge(before, after)
        assert verdict.decision == decision, broken
    assert "which may be luck" in verdict.reason


def test_what_must_pass_and_may_be_broken_is_no_yes_where_the_budget_ends() -> None:
    before = dict.fromkeys(ids(10), 0.0) | {"test_009": 1.0}
    after = dict.fromkeys(ids(10), 1.0) | {"test_009": 0.0}
    assert judge(before, after, budget=20).accepted
    verdict = judge(before, after, budget=20, must_pass=["test_009"])
    assert verdict.decision == "rejected"
    assert verdict.reason.startswith("must pass, and the budget ended before it was sampled")


def expect(*tasks: str, lift: float = 0.3, of: Sequence[str] = ()) -> tuple[tuple[str, float], ...]:
    """The lifts that a search expects of these tasks; none of those ``of`` a suite besides."""
    return tuple((dict.fromkeys(of, 0.0) | dict.fromkeys(tasks, lift)).items())


def test_most_fresh_pairs_are_where_the_search_expects_a_lift() -> None:
    before = dict.fromkeys(ids(20), 0.5)
    drawn = Counter[str]()
    rounds: list[list[Draw]] = []
    judge(before, before, lift=expect("test_003", of=ids(20)), rounds=rounds, budget=80)
    for draws in rounds:
        drawn.update(draw.task for draw in draws)
    assert drawn["test_003"] >= 0.5 * drawn.total()
    assert {draw.arm for draw in rounds[0]} == {"candidate", "incumbent"}


def test_a_task_that_the_search_has_not_seen_is_expected_to_move_as_the_others() -> None:
    drawn = Counter[str]()
    before = dict.fromkeys(ids(20), 0.5)
    after = dict.fromkeys(ids(20), 0.6)
    for seed in range(5):
        rounds: list[list[Draw]] = []
        lift = expect(*ids(10), of=ids(15))
        held = tuple(ids(20)[15:])
        judge(before, after, seed, lift=lift, held_out=held, rounds=rounds, budget=160)
        for draws in rounds:
            drawn.update(draw.task for draw in draws)
    held_out, dull = (sum(drawn[t] for t in part) for part in (ids(20)[15:], ids(20)[10:15]))
    assert held_out > 1.3 * dull


def test_a_clear_gain_is_decided_in_few_wide_rounds() -> None:
    before = dict.fromkeys(ids(40), 0.9) | dict.fromkeys(ids(8), 0.1)
    after = dict.fromkeys(ids(40), 0.9)
    for seed in range(10):
        rounds: list[list[Draw]] = []
        lift = expect(*ids(6), of=ids(28))
        options = options_with(lift=lift, held_out=("test_006", *ids(40)[28:]))
        assert judge(before, after, seed, options, rounds=rounds).accepted
        assert len(rounds) <= 9


def test_a_handful_of_samples_confirms_what_a_search_has_won_clearly() -> None:
    before = dict.fromkeys(ids(15), 0.2)
    after = dict.fromkeys(ids(15), 0.9)

    def samples(log_e: float) -> float:
        lift = expect(*ids(15))
        verdicts = [judge(before, after, seed, lift=lift, log_e=log_e) for seed in range(10)]
        assert all(verdict.accepted for verdict in verdicts)
        return sum(v.candidate_samples + v.incumbent_samples for v in verdicts) / 10

    assert samples(10.0) <= samples(0.0)
    assert samples(10.0) <= 60


def test_the_rise_that_a_search_expects_counts_beside_the_observed_one() -> None:
    """A search that expects nothing in figures, as a published one, has the observed one only."""
    before = dict.fromkeys(ids(30), 0.6)
    after = dict.fromkeys(ids(30), 0.7)

    def verdicts(*lift: tuple[str, float]) -> list[Verdict]:
        options = options_with(lift=lift, log_e=14, budget=90)
        return [judge(before, after, seed, options) for seed in range(30)]

    much, little = (verdicts(*expect(*before, lift=lift)) for lift in (0.1, 0.01))
    untold = verdicts()
    accepted = [sum(v.accepted for v in found) for found in (much, untold, little)]
    assert accepted[0] > accepted[1] > accepted[2]
    assert any("the search expected +1.0 points" in verdict.reason for verdict in little)
    assert not any("the search expected" in verdict.reason for verdict in untold)


def test_a_hopeless_candidate_is_refused_before_the_samples_are_used_up() -> None:
    before = dict.fromkeys(ids(40), 0.6)
    after = dict.fromkeys(ids(40), 0.3)
    for seed in range(5):
        for lift in (None, expect(*ids(6), of=ids(40))):
            verdict = judge(before, after, seed, lift=lift)
            assert verdict.decision == "rejected"
            assert verdict.candidate_samples + verdict.incumbent_samples < 400


@each_row("budget", [1, 9, 40, 75, 150])
def test_no_sample_more_than_the_budget(budget: int) -> None:
    rng = random.Random(budget)
    before = agent_like(30, rng)
    for seed in range(6):
        rounds: list[list[Draw]] = []
        after = fix(before, rng)
        must = (ids(30)[seed],)
        judge(before, after, seed, must_pass=must, budget=budget, rounds=rounds)
        assert sum(map(len, rounds)) <= budget


@each_row("budget", [40, 70, 75])
def test_neither_errors_nor_doubts_about_the_model_exceed_the_budget(budget: int) -> None:
    """A cap would else end the comparison, all of which is paid, without a verdict."""
    before = dict.fromkeys(ids(30), 0.5)
    after = dict.fromkeys(ids(30), 0.8)
    options = options_with(
        lift=expect(*ids(30)), rates=tuple(before.items()), budget=budget, max_error_rate=0.3
    )
    for seed in range(20):
        verdict, samples = judge_with_errors(before, after, seed, options)
        assert verdict.decision != "unmeasured"
        assert samples <= budget


def judge_with_errors(
    before: Rates, after: Rates, seed: int, options: GateOptions
) -> tuple[Verdict, int]:
    """The verdict where a tenth of the samples are errors, and the number of all samples."""
    roll = roller(before, after, seed)
    taken: list[Draw] = []

    def take(draws: Sequence[Draw]) -> list[Sample]:
        taken.extend(draws)
        is_lost = {draw: luck(f"lost/{seed}/{draw}") < 0.1 for draw in draws}
        return [Sample(draw, None if is_lost[draw] else roll(draw)) for draw in draws]

    gate = DefaultGate([GateTask(task) for task in before], options)
    return run_gate(gate, take), len(taken)


def test_what_the_search_has_won_speaks_against_nothing_only() -> None:
    """It does not say that the suite improved: two tasks are lifted and all others pay more."""
    before = dict.fromkeys(ids(30), 0.6)
    worse = before | dict.fromkeys(ids(2), 0.95) | dict.fromkeys(ids(30)[2:], 0.5)
    lift = expect(*ids(2), of=ids(30))
    won = [judge(before, worse, seed, log_e=14, lift=lift).accepted for seed in range(25)]
    assert sum(won) <= 3


def test_no_val_task_that_runs_is_unmeasured() -> None:
    def take(draws: Sequence[Draw]) -> list[Sample]:
        gone = ("test_000", "test_001")
        return [
            Sample(d, None, skipped=True)
            if d.task in gone
            else Sample(d, d.arm == "candidate", float(d.arm == "candidate"))
            for d in draws
        ]

    tasks = [GateTask(task) for task in ids(12)]
    lost = GateOptions(held_out=("test_000", "test_001"))
    verdict = run_gate(make_gate("sequential", tasks, lost), take)
    assert verdict.decision == "unmeasured"
    assert verdict.reason.startswith("no val task could be measured")
    some = GateOptions(held_out=("test_000", "test_002"))
    assert run_gate(make_gate("sequential", tasks, some), take).accepted


def test_the_last_word_draws_both_arms_from_a_stream_of_its_own() -> None:
    def streams(**told: Any) -> set[tuple[str, str]]:
        gate = make_gate("sequential", [GateTask("a")], options_with(**told), decision=7)
        asked = gate.ask()
        assert isinstance(asked, tuple)
        return {(draw.arm, draw.stream) for draw in asked}

    assert streams(final=True) == {("candidate", "final/7"), ("incumbent", "final/7")}
    assert streams() == {("candidate", "screen"), ("incumbent", "tape")}
    assert streams(lift=(("a", 0.1),)) == {("candidate", "fresh/7"), ("incumbent", "fresh/7")}


def test_scores_are_evidence_with_the_soft_metric() -> None:
    def take(draws: Sequence[Draw]) -> list[Sample]:
        return [Sample(d, False, 0.95 if d.arm == "candidate" else 0.05) for d in draws]

    tasks = [GateTask(task) for task in ids(5)]
    assert run_gate(make_gate("sequential", tasks, GateOptions(metric="soft")), take).accepted
    assert not run_gate(make_gate("sequential", tasks), take).accepted


# Properties.


@given(suites, st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_order_of_tasks_and_of_arrival_change_nothing(
    suite: tuple[Rates, Rates], chance: random.Random
) -> None:
    roll = roller(*suite, 7)
    tasks = [GateTask(task) for task in suite[0]]
    expected = run_gate(make_gate("sequential", tasks), lambda draws: answer(draws, roll))

    chance.shuffle(tasks)
    gate = make_gate("sequential", tasks)
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


@given(suites)
@settings(max_examples=30)
def test_a_candidate_that_always_passes_is_never_called_broken(
    suite: tuple[Rates, Rates],
) -> None:
    before, _ = suite
    assert not judge(before, dict.fromkeys(before, 1.0)).names("broken")


# Statistics, with fixed seeds; ``benchmarks/verdict.py`` measures the same on far more of them.


def accepted(
    kind: Callable[[Rates, random.Random], Rates], trials: int, *, named: bool = False, cap: int = 0
) -> float:
    """Share of the edits that are accepted, a third of 40 tasks being held out.

    Args:
        named: a search expects a lift of the train tasks that the edit lifts.
    """
    count = 0
    for seed in range(trials):
        rng = random.Random(seed)
        before = agent_like(40, rng)
        after = kind(before, rng)
        held = tuple(ids(40)[27:])
        lifted = [t for t in before if after[t] > before[t] + 0.2 and t not in held]
        train = [task for task in before if task not in held]
        told: dict[str, Any] = {"held_out": held, "lift": expect(*lifted, of=train)}
        if not named:
            told = {}
        count += judge(before, after, seed, budget=cap or None, **told).accepted
    return count / trials


def fix(p: Rates, rng: random.Random, most: int = 4) -> Rates:
    weak = [task for task, rate in p.items() if rate < 0.2]
    return p | dict.fromkeys(rng.sample(weak, min(most, len(weak))), 0.95)


def break_one(p: Rates, rng: random.Random) -> Rates:
    return p | {rng.choice([task for task, rate in p.items() if rate > 0.8]): 0.05}


def memorise(p: Rates, rng: random.Random) -> Rates:
    """Every train task that mostly fails is lifted, no val task is."""
    return p | {task: 0.95 for task in ids(27) if p[task] < 0.5}


def memorise_and_harm(p: Rates, rng: random.Random) -> Rates:
    return memorise(p, rng) | {task: 0.9 * p[task] for task in ids(40)[27:]}


def dilute(p: Rates, rng: random.Random) -> Rates:
    """Three train tasks are lifted and all others pay more."""
    weak = sorted(ids(27), key=p.__getitem__)[:3]
    won = sum(0.9 - p[task] for task in weak)
    rest = [task for task in p if task not in weak]
    loss = (won + 1.0) / sum(p[task] for task in rest)
    return {task: p[task] * (1 - loss) for task in rest} | dict.fromkeys(weak, 0.9)


def test_harm_is_not_accepted() -> None:
    assert accepted(break_one, 8) == 0


def test_four_fixed_tasks_are_nearly_always_seen() -> None:
    assert accepted(fix, 60, named=True) >= 0.85
    assert accepted(lambda p, rng: fix(p, rng, 8), 20, named=True, cap=100) >= 0.5


def test_what_only_suits_the_train_tasks_is_not_accepted() -> None:
    assert accepted(memorise, 15, named=True) <= 0.15
    assert accepted(memorise_and_harm, 15, named=True) == 0


@each_row(("cap", "trials"), [(0, 20), (100, 30)])
def test_a_loss_spread_over_all_tasks_is_seen_beside_a_few_lifted_ones(
    cap: int, trials: int
) -> None:
    assert accepted(dilute, trials, named=True, cap=cap) <= 0.25


@each_row("rate", [0.3, 0.9])
def test_suites_unlike_the_prior_keep_the_bound(rate: float) -> None:
    flat = dict.fromkeys(ids(20), rate)
    assert sum(judge(flat, flat, seed).accepted for seed in range(40)) <= 3


def test_a_thin_gain_is_seen_in_a_large_suite() -> None:
    before = dict.fromkeys(ids(60), 0.45)
    after = dict.fromkeys(before, 0.70)
    assert judge(before, after, 3).accepted
    assert sum(judge(before, before, seed).accepted for seed in range(8)) <= 1


@each_row("dearer", [1.0, 1.5, 2.5])
def test_a_candidate_that_costs_more_than_the_search_told_has_a_verdict_within_the_cap(
    dearer: float,
) -> None:
    """The cap would else end the comparison, all of which is paid, without one."""
    tasks = ids(12)
    roll = roller(dict.fromkeys(tasks, 0.4), dict.fromkeys(tasks, 0.6), 1)
    options = options_with(lift=expect(*tasks), final=True)
    gate = DefaultGate([GateTask(task) for task in tasks], options)
    purse = gate.purse = Purse(Amounts(cost=1.0), clock=lambda: 0.0)
    for index in range(48):
        purse.count_sample(str(index), Usage(calls=1, cost=0.01), 1.0)

    def take(draws: Sequence[Draw]) -> list[Sample]:
        for draw in draws:
            cost = 0.01 * (dearer if draw.arm == "candidate" else 1.0)
            purse.count_sample(str(draw), Usage(calls=1, cost=cost), 1.0)
        return [Sample(draw, roll(draw)) for draw in draws]

    verdict = run_gate(gate, take)
    assert verdict.decision in ("accepted", "rejected")
    assert purse.taken.cost <= purse.caps.cost
