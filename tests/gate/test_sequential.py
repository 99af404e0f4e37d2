"""The default gate: its decisions, what they cost, and how often they are right."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from gate_draws import luck
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_skillopt.gate import posterior, sequential
from pytest_skillopt.gate.counts import Counts
from pytest_skillopt.gate.data import (
    CANDIDATE,
    INCUMBENT,
    Draw,
    GateOptions,
    GateTask,
    Sample,
    Seen,
    Verdict,
)
from pytest_skillopt.gate.engine import run_gate
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
    gate = make_gate("sequential", tasks, replace(options or GateOptions(), **told))

    def take(draws: Sequence[Draw]) -> list[Sample]:
        if rounds is not None:
            rounds.append(list(draws))
        return answer(draws, roll)

    return run_gate(gate, take)


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
    verdict = judge(before, dict.fromkeys(before, 1.0), targets=("test_003",))
    assert verdict.accepted
    assert verdict.names("fixed") == ("test_003",)
    assert verdict.reason.startswith(
        "the suite's mean rose from 90.0 % to 100.0 % (+10.0 points), 1 task fixed (test_003); "
        "the chance of a rise is "
    )
    assert (verdict.gate, verdict.before, verdict.after) == ("sequential", 0.9, 1.0)
    assert verdict.e_value is not None
    assert verdict.e_value >= 20


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


@pytest.mark.parametrize("how", [{"options": VETO}, {"must_pass": ["test_009"]}])
def test_a_broken_task_rejects_whatever_else_improves(how: dict[str, Any]) -> None:
    """With the setting, and where it must pass."""
    assert judge(*ONE_BREAKS).accepted
    verdict = judge(*ONE_BREAKS, **how)
    assert verdict.decision == "rejected"
    assert "broken: test_009 (passed" in verdict.reason


def test_what_is_fixed_has_to_outweigh_what_breaks() -> None:
    """Five of ten tasks are fixed, and the other five break."""
    before = dict.fromkeys(ids(10), 1.0) | dict.fromkeys(ids(5), 0.0)
    for broken, decision in ((1, "accepted"), (5, "rejected")):
        after = dict.fromkeys(ids(10), 1.0) | dict.fromkeys(ids(10)[-broken:], 0.0)
        verdict = judge(before, after)
        assert verdict.decision == decision, broken
    assert "it is not credible that the suite improved" in verdict.reason


def test_a_task_that_must_pass_blocks_after_fewer_failures() -> None:
    before = dict.fromkeys(ids(40), 0.0) | {"test_039": 1.0}
    after = dict.fromkeys(ids(40), 1.0) | {"test_039": 0.0}

    def failures(*must_pass: str) -> int:
        verdict = judge(before, after, must_pass=must_pass, options=VETO)
        assert verdict.decision == "rejected"
        return verdict.tasks[39].candidate_n

    assert failures("test_039") < failures()


def test_what_must_pass_and_may_be_broken_is_no_yes_where_the_budget_ends() -> None:
    before = dict.fromkeys(ids(10), 0.0) | {"test_009": 1.0}
    after = dict.fromkeys(ids(10), 1.0) | {"test_009": 0.0}
    assert judge(before, after, budget=20).accepted
    verdict = judge(before, after, budget=20, must_pass=["test_009"])
    assert verdict.decision == "rejected"
    assert verdict.reason.startswith("must pass, and the budget ended while it looked broken")


def test_the_targets_come_first_and_a_hopeless_candidate_costs_no_more() -> None:
    before = agent_like(40, random.Random(3))
    targets = tuple(sorted(before, key=before.__getitem__)[:6])
    rounds: list[list[Draw]] = []
    verdict = judge(before, before, targets=targets, rounds=rounds)
    assert verdict.decision == "rejected"
    assert {draw.task for draw in rounds[0]} == set(targets)
    worse = dict.fromkeys(before, 0.0)
    assert not judge(before, worse, targets=targets, budget=250).accepted
    spent = []
    for seed in range(30):
        rounds = []
        judge(before, before, seed, targets=targets, held_out=tuple(ids(13)), rounds=rounds)
        spent.append(sum(map(len, rounds)))
    assert sum(spent) / len(spent) <= 0.6 * 2 * 5 * 40


def test_a_clear_gain_is_decided_in_few_wide_rounds() -> None:
    before = dict.fromkeys(ids(40), 0.9) | dict.fromkeys(ids(8), 0.1)
    after = dict.fromkeys(ids(40), 0.9)
    for seed in range(10):
        rounds: list[list[Draw]] = []
        options = GateOptions(targets=tuple(ids(6)), held_out=("test_006", *ids(40)[28:]))
        assert judge(before, after, seed, options, rounds=rounds).accepted
        assert len(rounds) <= 6


@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_a_hopeless_candidate_is_refused_for_its_chance(alpha: float) -> None:
    before = dict.fromkeys(ids(40), 0.6)
    after = dict.fromkeys(ids(40), 0.4)
    for seed in range(10):
        verdict = judge(before, after, seed, alpha=alpha, targets=tuple(ids(6)))
        assert "it is not credible that the suite improved" in verdict.reason


def test_the_targets_are_sampled_again_until_something_has_changed_for_certain() -> None:
    """Bad luck hides at first that the one target is lifted; two val tasks are lifted as well."""
    before = dict.fromkeys(ids(30), 1.0)
    late, lifted = "test_005", ("test_027", "test_028")

    def roll(draw: Draw) -> bool:
        if draw.task == late:
            return draw.index >= 4 if draw.arm == "candidate" else draw.index in (1, 3)
        return draw.task not in lifted or draw.index % 3 == 1 or draw.arm == "candidate"

    rounds: list[Counter[str]] = []

    def take(draws: Sequence[Draw]) -> list[Sample]:
        rounds.append(Counter(draw.task for draw in draws))
        return answer(draws, roll)

    options = GateOptions(targets=(late,), held_out=tuple(ids(30)[20:]), budget=250)
    verdict = run_gate(make_gate("sequential", [GateTask(task) for task in before], options), take)
    assert verdict.accepted, verdict.reason
    assert rounds[2][late] == 2 * sequential.FEW
    assert rounds[-1][late] <= 2


@pytest.mark.parametrize("budget", [1, 9, 40, 75, 150])
def test_no_sample_more_than_the_budget(budget: int) -> None:
    rng = random.Random(budget)
    before = agent_like(30, rng)
    for seed in range(6):
        rounds: list[list[Draw]] = []
        after = fix(before, rng)
        must = (ids(30)[seed],)
        judge(before, after, seed, must_pass=must, budget=budget, rounds=rounds)
        assert sum(map(len, rounds)) <= budget


def test_earlier_evidence_speaks_against_nothing_only() -> None:
    """It does not say that the suite improved: two tasks are lifted and all others pay more."""
    before = dict.fromkeys(ids(30), 0.6)
    worse = before | dict.fromkeys(ids(2), 0.95) | dict.fromkeys(ids(30)[2:], 0.5)
    won = [
        judge(before, worse, seed, prior=1e6, targets=tuple(ids(2))).accepted for seed in range(25)
    ]
    assert sum(won) <= 2


def test_a_mean_that_did_not_rise_is_looked_at_again() -> None:
    """One task is fixed for certain; the bad luck of others hides it at first."""
    before = dict.fromkeys(ids(30), 1.0) | dict.fromkeys(ids(3), 0.0)
    unlucky = set(ids(30)[-4:])

    def roll(draw: Draw) -> bool:
        if draw.task in ids(3):
            return draw.arm == "candidate"
        return not (draw.arm == "candidate" and draw.task in unlucky and draw.index == 0)

    options = GateOptions(targets=tuple(ids(3)))
    gate = make_gate("sequential", [GateTask(task) for task in before], options)
    verdict = run_gate(gate, lambda draws: answer(draws, roll))
    assert verdict.accepted
    assert verdict.before is not None
    assert verdict.after is not None
    assert verdict.after > verdict.before


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
        gate = make_gate("sequential", [GateTask("a")], GateOptions(**told), decision=7)
        asked = gate.ask()
        assert isinstance(asked, tuple)
        return {(draw.arm, draw.stream) for draw in asked}

    assert streams(final=True) == {("candidate", "final/7"), ("incumbent", "final/7")}
    assert streams() == {("candidate", "screen"), ("incumbent", "tape")}


def test_alpha_spent_over_a_run_adds_up_to_no_more() -> None:
    options = GateOptions(alpha_run=0.1)
    spent = [options.alpha_at(t) for t in range(10_000)]
    assert spent == sorted(spent, reverse=True)
    assert 0.0999 < math.fsum(spent) < 0.1


def test_scores_are_evidence_with_the_soft_metric() -> None:
    def take(draws: Sequence[Draw]) -> list[Sample]:
        return [Sample(d, False, 0.95 if d.arm == "candidate" else 0.05) for d in draws]

    tasks = [GateTask(task) for task in ids(5)]
    assert run_gate(make_gate("sequential", tasks, GateOptions(metric="soft")), take).accepted
    assert not run_gate(make_gate("sequential", tasks), take).accepted


# The posterior, against the enumeration of all that may have happened.


def by_hand(
    counts: dict[str, tuple[int, int, int, int]], held: Sequence[str], targets: Sequence[str]
) -> tuple[float, float]:
    """``B`` and the probability of "memorised" given an edit, by the definition."""

    def likelihood(p: float, q: float, c: tuple[int, int, int, int]) -> float:
        after, after_n, before, before_n = c
        old = p**before * (1 - p) ** (before_n - before)
        return float(old * q**after * (1 - q) ** (after_n - after))

    shares = posterior.fitted_shares(
        [(after + before, n + m) for after, n, before, m in counts.values()]
    )
    rates = dict(zip(posterior.RATES, shares, strict=True))
    nothing = math.prod(
        sum(share * likelihood(p, p, c) for p, share in rates.items()) for c in counts.values()
    )

    def of_task(task: str, shift: float, lifted: float, memorised: bool) -> float:
        up = lifted
        if task in targets:
            named, other = posterior.NAMED, posterior.MISNAMED
        else:
            named, other = 1 - posterior.NAMED, 1 - posterior.MISNAMED
        if task in held:
            up = 0.0 if memorised else lifted
        elif targets:
            up = lifted * named / (lifted * named + (1 - lifted) * other)
        down = min(posterior.DOWN, lifted * posterior.DOWN_SHARE)
        down *= (1 - up) / (3 if task in targets else 1)
        total = 0.0
        for p, share in rates.items():
            total += (
                share * (1 - up - down) * likelihood(p, posterior.shifted(p, shift), counts[task])
            )
            for beyond, weight in (
                ([q for q in rates if q > p], up),
                ([q for q in rates if q < p], down),
            ):
                distance = sum(abs(q - p) for q in beyond)
                for q in beyond or [p]:
                    chance = abs(q - p) / distance if beyond else 1.0
                    total += share * weight * chance * likelihood(p, q, counts[task])
        return total

    train = [task for task in counts if task not in held]
    prior = {}
    for shift, of_shift in posterior.SHIFTS.items():
        for lifted, of_lifted in posterior.LIFTED.items():
            weight = of_shift * of_lifted
            for task in train if targets else ():
                is_named = task in targets
                up = posterior.NAMED if is_named else 1 - posterior.NAMED
                not_up = posterior.MISNAMED if is_named else 1 - posterior.MISNAMED
                weight *= lifted * up + (1 - lifted) * not_up
            prior[shift, lifted] = weight
    edit = {
        memorised: sum(
            weight * math.prod(of_task(task, shift, lifted, memorised) for task in counts)
            for (shift, lifted), weight in prior.items()
        )
        / sum(prior.values())
        * (posterior.MEMORISED_PRIOR if memorised else 1 - posterior.MEMORISED_PRIOR)
        for memorised in (False, True)
    }
    return sum(edit.values()) / nothing, edit[True] / sum(edit.values())


passes_of_three = st.tuples(st.integers(0, 3), st.just(3), st.integers(0, 2), st.just(2))


@given(st.lists(passes_of_three, min_size=3, max_size=5), st.booleans())
@settings(max_examples=20)
def test_the_posterior_is_that_of_the_definition(
    rows: list[tuple[int, int, int, int]], named: bool
) -> None:
    names = ids(len(rows))
    counts = Counts(names, "hard")
    for task, (after, after_n, before, before_n) in zip(names, rows, strict=True):
        for arm, passed, n in ((CANDIDATE, after, after_n), (INCUMBENT, before, before_n)):
            for k in range(n):
                counts.add(Sample(Draw(arm, task, "final", k), k < passed))
    held, targets = names[-1:], names[:1] if named else []
    options = GateOptions(held_out=tuple(held), targets=tuple(targets))
    found = posterior.weigh(counts, options)
    bayes, memorised = by_hand(dict(zip(names, rows, strict=True)), held, targets)
    assert found.log_bayes == pytest.approx(math.log(bayes), abs=1e-9)
    assert found.memorised == pytest.approx(memorised, abs=1e-9)
    assert 0 <= found.chance <= 1


@given(suites, st.integers(0, 1000))
@settings(max_examples=40)
def test_one_more_pass_of_the_candidate_speaks_for_it(
    suite: tuple[Rates, Rates], seed: int
) -> None:
    """The expected net effect grows with it."""
    roll, names = roller(*suite, seed), list(suite[0])
    means = []
    for extra in (False, True):
        counts = Counts(names, "hard")
        for task in names:
            for arm in ("candidate", "incumbent"):
                draw = Draw(arm, task, "final", 0)
                passed = roll(draw) or (extra and arm == "candidate" and task == names[0])
                counts.add(Sample(draw, passed))
        means.append(posterior.weigh(counts, GateOptions()).mean)
    assert means[1] >= means[0] - 1e-9


# Properties.


@given(suites, st.integers(0, 1000))
@settings(max_examples=40)
def test_never_accepts_without_strict_improvement(suite: tuple[Rates, Rates], seed: int) -> None:
    verdict = judge(*suite, seed)
    if verdict.accepted:
        assert verdict.before is not None
        assert verdict.after is not None
        assert verdict.after > verdict.before
        assert all(task.candidate_n and task.incumbent_n for task in verdict.tasks)


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


@given(suites, st.integers(0, 1000))
@settings(max_examples=40)
def test_evidence_is_the_same_with_the_roles_swapped(suite: tuple[Rates, Rates], seed: int) -> None:
    before, after = suite
    names = [GateTask(task) for task in before]
    there = run_gate(
        make_gate("strict", names), lambda draws: answer(draws, roller(before, after, seed))
    )

    def take(draws: Sequence[Draw]) -> list[Sample]:
        roll = roller(before, after, seed)
        samples = []
        for draw in draws:
            arm = CANDIDATE if draw.arm == INCUMBENT else INCUMBENT
            passed = roll(Draw(arm, draw.task, draw.stream, draw.index))
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


# Statistics, with fixed seeds; ``benchmarks/verdict.py`` measures the same on far more of them.


def accepted(
    kind: Callable[[Rates, random.Random], Rates], trials: int, *, named: bool = False, cap: int = 0
) -> float:
    """Share of the edits that are accepted, a third of 40 tasks being held out.

    Args:
        named: the train tasks that the edit lifts are the targets.
    """
    count = 0
    for seed in range(trials):
        rng = random.Random(seed)
        before = agent_like(40, rng)
        after = kind(before, rng)
        held = tuple(ids(40)[27:])
        lifted = [t for t in before if after[t] > before[t] + 0.2 and t not in held]
        told: dict[str, Any] = {"held_out": held, "targets": tuple(lifted) if named else ()}
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


def test_chance_is_not_accepted() -> None:
    assert accepted(lambda p, rng: dict(p), 20) == 0


def test_harm_is_not_accepted() -> None:
    assert accepted(break_one, 15) == 0


def test_four_fixed_tasks_are_nearly_always_seen() -> None:
    assert accepted(fix, 60, named=True) >= 0.85
    assert accepted(lambda p, rng: fix(p, rng, 8), 20, named=True, cap=100) >= 0.5


def test_what_only_suits_the_train_tasks_is_not_accepted() -> None:
    assert accepted(memorise, 15, named=True) <= 0.15
    assert accepted(memorise_and_harm, 15, named=True) == 0


@pytest.mark.parametrize(("cap", "trials"), [(0, 20), (100, 30)])
def test_a_loss_spread_over_all_tasks_is_seen_beside_a_few_lifted_ones(
    cap: int, trials: int
) -> None:
    assert accepted(dilute, trials, named=True, cap=cap) <= 0.15


@pytest.mark.parametrize("rate", [0.3, 0.6, 0.9])
def test_suites_unlike_the_prior_keep_the_bound(rate: float) -> None:
    flat = dict.fromkeys(ids(20), rate)
    assert sum(judge(flat, flat, seed).accepted for seed in range(48)) / 48 <= 0.05


def test_a_thin_gain_is_seen_in_a_large_suite() -> None:
    before = dict.fromkeys(ids(60), 0.45)
    after = dict.fromkeys(before, 0.70)
    assert judge(before, after, 3).accepted
    assert sum(judge(before, before, seed).accepted for seed in range(20)) <= 1


def test_samples_of_the_search_speak_for_the_net_effect_and_never_stand_in_for_fresh_ones() -> None:
    """A loss on tasks that are not targets is seen sooner, and luck is judged by fresh samples."""
    before = dict.fromkeys(ids(30), 0.85) | {"test_000": 0.1}
    after = dict.fromkeys(ids(30), 0.85) | {"test_000": 0.95}
    others = ids(30)[1:20]

    def accepted(candidate: int, incumbent: int) -> int:
        seen = tuple(Seen(task, candidate, 12, incumbent, 12) for task in others)
        told: dict[str, Any] = {"targets": ("test_000",), "held_out": tuple(ids(30)[20:])}
        verdicts = [judge(before, after, seed, seen=seen, budget=180, **told) for seed in range(12)]
        assert all(v.candidate_samples + v.incumbent_samples <= 180 for v in verdicts)
        return sum(verdict.accepted for verdict in verdicts)

    assert accepted(10, 10) > accepted(8, 11)
    unchanged = tuple(Seen(task, 12, 12, 6, 12) for task in others)
    lucky = [judge(before, before, seed, seen=unchanged, budget=180) for seed in range(12)]
    assert sum(verdict.accepted for verdict in lucky) <= 1
