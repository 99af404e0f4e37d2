"""The final comparison as the only decision: what it accepts and what it costs."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_skillopt.gate.data import Draw, GateOptions, GateTask, Sample, Verdict
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.search.final_comparison import plan_final
from pytest_skillopt.search.stages import Stages, make_gate, open_gate
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.document import Document
from pytest_skillopt.suite.rollouts import InfraError
from pytest_skillopt.suite.sampler import StopRun

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from types import ModuleType

    from pytest_skillopt.suite.rollouts import RolloutRequest


def decide(
    passes: Callable[[Draw], bool | None],
    n: int,
    *,
    held: Collection[str] = (),
    must: Collection[str] = (),
    order: Sequence[int] = (),
    backwards: bool = False,
    seen: list[Draw] | None = None,
    **options: Any,
) -> Verdict:
    """The verdict on ``n`` tasks; an outcome of None is a skip."""
    names = [f"t{i}" for i in (order or range(n))]
    held = tuple(held) or tuple(names[: (n + 2) // 3])
    told = GateOptions(alone=True, held_out=held, **options)
    gate = make_gate("final", [GateTask(name, name in must) for name in names], told)

    def take(draws: Sequence[Draw]) -> list[Sample]:
        if seen is not None:
            seen.extend(draws)
        outcomes = [(draw, passes(draw)) for draw in draws]
        samples = [Sample(draw, passed, skipped=passed is None) for draw, passed in outcomes]
        return samples[::-1] if backwards else samples

    return run_gate(gate, take)


def fixed_outcomes(pairs: Sequence[tuple[bool, bool]]) -> Callable[[Draw], bool]:
    """Task ``n`` passes as told before and after, in every sample."""
    return lambda draw: pairs[int(draw.task[1:])][draw.arm == "candidate"]


def noisy(seed: int, rate: Callable[[int, bool], float]) -> Callable[[Draw], bool]:
    """``rate`` of a task's number and whether it is the candidate that is sampled."""

    def passes(draw: Draw) -> bool:
        key = f"{seed}/{draw.arm}/{draw.task}/{draw.stream}/{draw.index}"
        return random.Random(key).random() < rate(int(draw.task[1:]), draw.arm == "candidate")

    return passes


def sign_test(wins: int, losses: int) -> float:
    """P-value of as many wins among the tasks that differ, by the definition."""
    n = wins + losses
    return math.fsum(math.comb(n, k) * 0.5**n for k in range(wins, n + 1))


pairs_of_outcomes = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=14)
better_pairs = st.lists(
    st.sampled_from([(False, True)] * 4 + [(True, True), (False, False), (True, False)]),
    min_size=4,
    max_size=14,
)
priors = st.sampled_from([0.5, 1.0, 2.5, 8.0, 100.0])


# The verdict.


@given(
    st.one_of(pairs_of_outcomes, better_pairs),
    st.permutations(range(14)),
    st.sets(st.integers(0, 13)),
    priors,
    st.sampled_from([0, 1]),
)
@settings(max_examples=200)
def test_it_decides_as_a_complete_round_does(
    pairs: list[tuple[bool, bool]],
    shuffled: list[int],
    chosen: set[int],
    prior: float,
    rollouts: int,
) -> None:
    n = len(pairs)
    held = [i for i in range(n) if i in chosen] or [0]
    order = [i for i in shuffled if i < n]
    verdict = decide(
        fixed_outcomes(pairs),
        n,
        held=[f"t{i}" for i in held],
        order=order,
        first=tuple(f"t{i}" for i in order[::2]),
        prior=prior,
        rollouts=rollouts,
        kmax=1,
    )
    wins, losses = pairs.count((False, True)), pairs.count((True, False))
    rises = wins > losses and sum(pairs[i][1] - pairs[i][0] for i in held) > 0
    share = 0.5 if rollouts else 1.0
    credible = sign_test(wins, losses) <= min(1.0, share * 0.05 * prior)
    assert verdict.accepted == (rises and credible), verdict.reason
    assert verdict.incumbent_samples <= n
    assert verdict.candidate_samples == n


@given(
    st.integers(0, 10_000),
    st.integers(4, 14),
    st.sampled_from([-0.3, 0.0, 0.2, 0.5]),
    st.sampled_from([0, 1, 3]),
    st.integers(0, 90),
    priors,
)
@settings(max_examples=120)
def test_whatever_the_guard_samples_accepting_means_strictly_better(
    seed: int, n: int, lift: float, rollouts: int, budget: int, prior: float
) -> None:
    passes = noisy(seed, lambda task, new: 0.45 + (lift if new else 0))
    seen: list[Draw] = []
    told: dict[str, Any] = {"rollouts": rollouts, "budget": budget, "prior": prior}
    verdict = decide(passes, n, seen=seen, **told)
    held = {f"t{i}" for i in range((n + 2) // 3)}
    gains = {
        row.task: row.candidate_score - (row.incumbent_score if row.incumbent_n else 1)
        for row in verdict.tasks
    }
    if verdict.accepted:
        assert math.fsum(gains.values()) > 0
        assert math.fsum(gains[task] for task in held) > 0
        assert decide(passes, n, **(told | {"prior": 10 * prior})).accepted
        mirrored = decide(
            lambda d: passes(
                Draw("incumbent" if d.arm == "candidate" else "candidate", *_place(d))
            ),
            n,
            **told,
        )
        assert not mirrored.accepted
    least = 2 * n * rollouts if rollouts else n
    assert len(seen) <= max(budget, least)
    assert verdict == decide(passes, n, held=held, order=range(n)[::-1], backwards=True, **told)


def _place(draw: Draw) -> tuple[str, str, int]:
    return draw.task, draw.stream, draw.index


@pytest.mark.parametrize("rollouts", [0, 2])
@pytest.mark.parametrize("staked", [False, True])
def test_an_edit_that_changes_nothing_is_accepted_with_probability_alpha_at_most(
    rollouts: int, staked: bool
) -> None:
    """Also with half of a capital of 1 on something that had nothing to do with it."""
    runs, alpha, accepted = 300, 0.2, 0
    rates = [0.1, 0.3, 0.5, 0.5, 0.7, 0.9]
    for seed in range(runs):
        prior = 1.0
        if staked:
            prior = 4.5 if random.Random(f"prior/{seed}").random() < 1 / 8 else 0.5
        passes = noisy(seed, lambda task, new: rates[task % 6])
        accepted += decide(passes, 18, rollouts=rollouts, alpha=alpha, prior=prior).accepted
    assert accepted / runs <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / runs)
    assert accepted, "a level of a fifth is not so strict that nothing passes"


@pytest.mark.parametrize("prior", [1.0, 100.0])
def test_a_real_gain_is_seen(prior: float) -> None:
    def rate(task: int, new: bool) -> float:
        return 0.95 if new or task % 5 > 1 else 0.05

    runs = 60
    won = [
        decide(noisy(seed, rate), 30, prior=prior, rollouts=0, budget=57) for seed in range(runs)
    ]
    assert sum(verdict.accepted for verdict in won) >= 0.9 * runs
    assert all("than chance explains" in v.reason for v in won if v.accepted)
    assert all(verdict.final for verdict in won)


def test_it_ends_as_soon_as_the_rest_cannot_matter_and_says_what_is_certain() -> None:
    every = decide(lambda draw: draw.arm == "candidate", 48, rollouts=0)
    assert every.accepted
    assert every.incumbent_samples < 36
    none = decide(lambda draw: draw.arm == "incumbent", 48, rollouts=0)
    assert (none.decision, none.incumbent_samples) == ("rejected", 0)
    assert none.reason.startswith("the suite's mean did not strictly rise: it moved by -48 to +0 ")
    # Three wins are a rise, and may be chance.
    few = decide(
        lambda draw: draw.arm == "candidate" and int(draw.task[1:]) < 3, 48, rollouts=0, kmax=1
    )
    assert few.reason.startswith(
        "the gain may be chance (a skill that changes nothing would seem to gain as much with "
        "probability 0.12; at most 0.05 is allowed)"
    )
    told = decide(
        lambda draw: draw.task != "t0" or draw.arm == "incumbent", 6, held=["t0"], rollouts=1
    )
    assert "the suite's mean did not strictly rise" in told.reason


def test_a_gain_that_the_search_has_seen_alone_is_none() -> None:
    def trained(draw: Draw) -> bool:
        return draw.arm == "candidate" or draw.task in ("t0", "t1")

    verdict = decide(trained, 20, held=["t0", "t1"], rollouts=1)
    assert verdict.decision == "rejected"
    assert verdict.reason == (
        "the mean of the val tasks did not strictly rise: it moved from 100.0 % to 100.0 % "
        "(+0.0 points), that of the whole suite from 10.0 % to 100.0 % (+90.0 points)"
    )


def test_where_the_budget_ends_what_both_were_sampled_on_is_compared() -> None:
    """Three wins of three may be chance, whatever the rest would have been."""
    seen: list[Draw] = []
    verdict = decide(
        lambda draw: draw.arm == "candidate", 6, rollouts=0, budget=9, held=["t0"], seen=seen
    )
    assert len(seen) == 9
    assert verdict.decision == "rejected"
    assert verdict.reason.startswith(
        "the gain may be chance (a skill that changes nothing would seem to gain as much with "
        "probability 0.12; at most 0.05 is allowed)"
    )
    assert decide(lambda d: d.arm == "candidate", 6, rollouts=0, budget=12, held=["t0"]).accepted


def test_held_out_tasks_that_have_not_risen_are_sampled_once_more() -> None:
    """The skill before passed all six at first, by good luck."""

    def luck(draw: Draw) -> bool:
        return draw.arm == "candidate" or (int(draw.task[1:]) < 6 and draw.index == 0)

    told: dict[str, Any] = {"held": [f"t{i}" for i in range(6)], "rollouts": 0}
    assert decide(luck, 30, budget=80, **told).accepted
    missed = decide(luck, 30, budget=36, **told)
    assert "the mean of the val tasks did not strictly rise" in missed.reason
    assert not decide(luck, 30, budget=80, kmax=1, **told).accepted


# The guard.


def broken(*tasks: str) -> Callable[[Draw], bool]:
    """An edit that turns every task: these the wrong way."""
    return lambda draw: (draw.arm == "candidate") != (draw.task in tasks)


@pytest.mark.parametrize("rollouts", [0, 1, 5])
@pytest.mark.parametrize("veto", [False, True])
def test_a_broken_task_is_named_and_rejects_where_that_is_asked_for(
    rollouts: int, veto: bool
) -> None:
    """Also where the skill before had no sample of it when the rule was certain."""
    first = tuple(f"t{i}" for i in range(23))
    told: dict[str, Any] = {"rollouts": rollouts, "budget": 10**6, "first": first, "veto": veto}
    verdict = decide(broken("t23"), 24, **told)
    assert verdict.accepted != veto
    assert verdict.reason.startswith("broken: t23 (passed")
    assert verdict.names("broken") == ("t23",)


def test_breaks_that_are_not_credibly_outweighed_reject() -> None:
    """Thirteen tasks fixed and eleven broken, and few samples to tell."""
    lost = [f"t{i}" for i in range(2, 13)]
    told: dict[str, Any] = {"held": ["t0"], "rollouts": 2, "prior": 1e9}
    verdict = decide(broken(*lost), 24, budget=100, **told)
    assert verdict.decision == "rejected"
    assert verdict.reason.startswith("broken: t")
    assert "on balance it is not credible that the suite improved: +" in verdict.reason


def test_a_task_that_fails_by_bad_luck_does_not_reject() -> None:
    def slips(draw: Draw) -> bool:
        return draw.arm == "candidate" and (draw.task, draw.index) != ("t9", 0)

    def passing(draw: Draw) -> bool:
        return slips(draw) or (draw.task == "t9" and draw.arm == "incumbent")

    assert decide(passing, 24, rollouts=0, budget=10**6).accepted


@pytest.mark.parametrize("budget", [24, 30, 47, 48, 55, 64])
@pytest.mark.parametrize("rollouts", [0, 1])
def test_the_guard_goes_no_further_than_the_budget(budget: int, rollouts: int) -> None:
    seen: list[Draw] = []
    decide(broken("t20", "t21"), 24, rollouts=rollouts, budget=budget, must=["t21"], seen=seen)
    assert len(seen) <= max(budget, 48 * rollouts, 24 + 1)
    assert len(set(seen)) == len(seen)
    assert {draw.stream for draw in seen} == {"final/1"}


@pytest.mark.parametrize("rollouts", [0, 1])
def test_a_task_that_must_pass_blocks_for_fewer_samples(rollouts: int) -> None:
    taken = []
    for must in ((), ("t20",)):
        seen: list[Draw] = []
        budget = 2 * 24 + 20
        told: dict[str, Any] = {"rollouts": rollouts, "budget": budget, "veto": True}
        verdict = decide(broken("t20"), 24, must=must, seen=seen, **told)
        assert verdict.decision == "rejected"
        taken.append(sum(draw.task == "t20" for draw in seen))
    assert verdict.reason.startswith("must pass, but broken: t20")
    assert taken[1] < taken[0]


def test_what_must_pass_is_sampled_before_what_else_looks_broken() -> None:
    """The means reach for one of them."""
    suspects = ("t20", "t21", "t22")
    for must in suspects:
        verdict = decide(broken(*suspects), 24, rollouts=1, budget=48 + 8, must=[must])
        assert verdict.reason.startswith(f"must pass, but broken: {must}")


def test_what_must_pass_and_may_be_broken_is_no_yes_where_the_budget_ends() -> None:
    """Another task is let go there: one failure may be bad luck."""
    for must, decision in ((["t20"], "rejected"), ([], "accepted")):
        verdict = decide(broken("t20"), 24, rollouts=1, budget=48 + 2, must=must)
        assert verdict.decision == decision
    verdict = decide(broken("t20"), 24, rollouts=1, budget=48 + 2, must=["t20"])
    assert verdict.reason.startswith("must pass, and the budget ended while it looked broken: t20")


def test_a_mean_that_falls_back_under_the_guard_is_no_rise() -> None:
    """A task was lucky in the round, and shows how it is when it is sampled again."""

    def passes(draw: Draw) -> bool:
        if draw.task == "t0":
            return draw.arm == "candidate" and draw.index < 4
        return draw.task != "t1" or draw.arm == "incumbent" or draw.index < 3

    told: dict[str, Any] = {"rollouts": 6, "prior": 100.0, "held": ["t0"]}
    assert decide(passes, 4, budget=48, **told).accepted
    verdict = decide(passes, 4, budget=90, **told)
    assert verdict.decision == "rejected"
    assert verdict.reason.startswith("broken: t1 (passed 9 of 9 before, 3 of 9 after); the suite")


# What cannot be measured; see test_gate_errors.py for what all gates share.


def test_no_val_task_that_runs_is_unmeasured() -> None:
    def skipping(draw: Draw) -> bool | None:
        return None if draw.task in ("t0", "t1") else draw.arm == "candidate"

    for rollouts in (0, 2):
        verdict = decide(skipping, 12, held=["t0", "t1"], rollouts=rollouts)
        assert verdict.decision == "unmeasured"
        assert verdict.reason.startswith("no val task could be measured")
    assert decide(skipping, 12, held=["t0", "t2", "t3"], rollouts=0).accepted


def test_the_short_form_leaves_out_what_gives_nothing_but_errors() -> None:
    def measure(dead: Collection[str]) -> Verdict:
        tasks = [GateTask(f"t{i:02}") for i in range(40)]
        options = GateOptions(rollouts=0, alone=True, held_out=("t07", "t08"), budget=80)
        return run_gate(
            make_gate("final", tasks, options),
            lambda draws: [
                Sample(draw, None if f"{draw.task} {draw.arm}" in dead else draw.arm == "candidate")
                for draw in draws
            ],
        )

    both = measure(["t07 candidate", "t07 incumbent"])
    assert both.accepted
    assert "left out: t07, with nothing but infrastructure errors under both" in both.reason
    for arm in ("candidate", "incumbent"):
        assert measure([f"t07 {arm}"]).decision == "unmeasured"


def test_a_task_skipped_under_one_skill_alone_is_unmeasured() -> None:
    for arm in ("candidate", "incumbent"):
        verdict = decide(
            lambda d, a=arm: None if (d.task, d.arm) == ("t0", a) else d.arm == "candidate",  # type: ignore[misc]
            12,
            rollouts=0,
        )
        assert verdict.decision == "unmeasured"
        assert f"t0 was skipped under the {arm}" in verdict.reason


# The training.


def train(
    toy: ModuleType, world: Any, *, useful: float = 0.7, cap: int = 400, **told: Any
) -> tuple[Any, Any]:
    tasks = toy.make_tasks(world)
    sampler = toy.ToySampler(world, tasks)
    trainer = Trainer(
        Document.from_bytes(toy.SKILL),
        tasks,
        sampler,
        toy.ToyOptimizer(useful=useful, seed=world.seed),
        Settings(max_rollouts=cap, **told.pop("settings", {})),
        **told,
    )
    return trainer.run(), sampler


def streams(sampler: Any) -> set[str]:
    return {rollout.request.stage for rollout in sampler.sampled.values()}


@pytest.mark.parametrize("cap", [180, 260, 400, 800])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_training_under_a_small_cap_decides_once(toy: ModuleType, cap: int, seed: int) -> None:
    world = toy.make_world(seed=seed)
    outcome, sampler = train(toy, world, cap=cap)
    assert outcome.samples == len(sampler.sampled) <= cap
    assert all(row.gate == "" and row.verdict == "none" for row in outcome.steps)
    assert streams(sampler) == {"train", "trial", "final", "test"}
    assert outcome.status == "accepted"
    assert outcome.verdict.final
    assert outcome.val.after.rate > outcome.val.before.rate
    fates = {row.content: row.status for row in outcome.edits}
    written = {edit.content for edit in outcome.accepted}
    assert written
    assert {text for text, fate in fates.items() if fate == "accepted"} == written
    assert toy.HARM not in outcome.after.text


def test_two_runs_with_one_seed_are_equal(toy: ModuleType) -> None:
    one, _ = train(toy, toy.make_world())
    other, _ = train(toy, toy.make_world(), settings={"optimizer_workers": 8})
    assert one == other


def test_edits_that_the_last_verdict_refuses_are_rejected(toy: ModuleType) -> None:
    """What helps the train tasks breaks val tasks that passed before."""
    world = toy.make_world()
    honest = world.rate
    unseen = {task.id for task in toy.make_tasks(world) if task.split == "val"}

    def rate(task: str, text: str) -> float:
        if task in unseen and not world.needs[task]:
            return 0.02 if "Convention" in text else 0.98
        return 0.05 if task in unseen else float(honest(task, text))

    world.rate = rate
    outcome, _ = train(toy, world)
    assert (outcome.status, outcome.after) == ("rejected", outcome.before)
    assert "the mean of the val tasks did not strictly rise" in outcome.reason
    went_on = [row for row in outcome.edits if row.content in outcome.proposal.text]
    assert {row.status for row in went_on} == {"rejected"}


def end_in_the_last_comparison(request: RolloutRequest) -> InfraError | None:
    if request.stage == "final":
        raise StopRun("the cap is reached")
    return None


def fail_in_the_last_comparison(request: RolloutRequest) -> InfraError | None:
    return InfraError("provider", "no answer") if request.stage == "final" else None


@pytest.mark.parametrize(
    ("errors", "status"),
    [(end_in_the_last_comparison, "unchanged"), (fail_in_the_last_comparison, "unmeasured")],
)
def test_edits_without_a_verdict_are_dropped(toy: ModuleType, errors: Any, status: str) -> None:
    outcome, _ = train(toy, toy.make_world(errors=errors))
    assert (outcome.status, outcome.after) == (status, outcome.before)
    went_on = [row for row in outcome.edits if row.content in outcome.proposal.text]
    assert went_on
    assert {row.status for row in went_on} == {"dropped"}
    assert {row.why for row in went_on} == {"the last comparison was not completed"}


@pytest.mark.parametrize(
    "told",
    [
        {"settings": {"gate": "strict"}},
        {"settings": {"metric": "soft"}},
        {"settings": {"gate": "paired"}},
        {"settings": {"search": "batch"}},
        {"stages": Stages(gate=lambda question: open_gate(question))},
    ],
    ids=["strict", "soft", "paired", "batch", "own gate"],
)
def test_a_gate_that_is_another_or_can_be_paid_for_stays_on_the_way(
    toy: ModuleType, told: dict[str, Any]
) -> None:
    world = toy.make_world(strong=1.0, weak=0.0)
    outcome, sampler = train(toy, world, **told)
    assert any(row.gate for row in outcome.steps)
    assert {"tape", "screen", "fresh"} & streams(sampler)
    assert outcome.verdict is None or outcome.verdict.final


# What is kept for it.


def test_what_is_kept_for_the_only_decision_leaves_a_part_for_its_guard() -> None:
    final = plan_final(Settings(max_rollouts=599), 30, alone=True)
    assert (final.alone, final.rollouts, final.samples) == (True, 0, 60)
    assert final.rounds_within(74) == 0
    assert final.rounds_within(75) == 1
    assert final.rounds_within(10_000) == Settings().final_rollouts
    assert plan_final(Settings(max_rollouts=700), 30, alone=True).rollouts == 2
    assert plan_final(Settings(), 30, alone=True).rollouts == Settings().final_rollouts
    assert not plan_final(Settings(max_rollouts=599), 30).alone


# The session.

INVOICES = r"""
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("number", range(16))
def test_order(skill_agent, number):
    text = f"Invoice no: 70{number}\nYour order: PO-45-{number}7\nTotal EUR 10.00"
    question = "Extract as JSON the field `po_number` of this invoice."
    reply = skill_agent(f"{question}\n\n{text}").json()
    assert reply["po_number"] == f"45{number}7"
"""


def test_a_session_leaves_what_helped_to_the_final_comparison(pytester: pytest.Pytester) -> None:
    skill = pytester.path / "SKILL.md"
    skill.write_text("---\nname: orders\ndescription: Reads orders.\n---\n\nAnswer in JSON.\n")
    pytester.makepyfile(INVOICES)
    pytester.makeini("[pytest]\nskillopt_model = offline:sim-steady\n")
    pytester.makeconftest(
        f"""
        import sys
        from pytest_skillopt import chat_model

        sys.path.append({str(Path(__file__).parents[2] / "example_project")!r})

        def pytest_skillopt_client(config, role):
            from simulation import serve

            return chat_model(config, role, provider="offline", url=serve, simulated=True)
        """
    )
    before = skill.read_text()
    result = pytester.runpytest_subprocess(
        "-p", "no:xdist", "--skillopt-train", "--skillopt-max-rollouts=150"
    )
    assert result.ret == 0
    assert skill.read_text().startswith(before.rstrip())
    assert skill.read_text() != before
    text = " ".join(result.stdout.str().split())
    assert "kept for the final comparison" in text
    assert text.count("The file is written.") == 1
