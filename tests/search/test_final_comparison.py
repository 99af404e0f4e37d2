"""The last comparison under a cap: fewer samples, the same rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_skillopt.gate.gate import run_gate
from pytest_skillopt.gate.gate_options import GateOptions, GateTask
from pytest_skillopt.gate.gates import make_gate
from pytest_skillopt.gate.verdict import Draw, Sample, Verdict
from pytest_skillopt.search.final import plan_final
from pytest_skillopt.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.gate.metric import MetricName

outcomes = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12)
tenths = st.integers(0, 10).map(lambda tenth: tenth / 10)


def decide(
    name: str,
    scores: Sequence[tuple[float, float]],
    first: tuple[str, ...] = (),
    must: bool = False,
    metric: MetricName = "hard",
) -> Verdict:
    """The verdict where task ``n`` scores as told before and after, in every sample."""
    by_task = {f"t{n}": pair for n, pair in enumerate(scores)}

    def take(draws: Sequence[Draw]) -> list[Sample]:
        assert draws
        return [
            Sample(draw, score == 1, float(score))
            for draw in draws
            for score in [by_task[draw.task][draw.arm == "candidate"]]
        ]

    options = GateOptions(metric=metric, rollouts=1, first=first)
    tasks = [GateTask(task, must_pass=must and task == "t0") for task in by_task]
    return run_gate(make_gate(name, tasks, options), take)


@given(outcomes, st.permutations([f"t{n}" for n in range(12)]), st.booleans())
def test_the_short_comparison_decides_as_a_whole_round_does(
    passes: list[tuple[bool, bool]], first: list[str], must: bool
) -> None:
    short = decide("final, short", passes, tuple(first), must)
    whole = decide("final", passes, must=must)
    assert short.decision == whole.decision
    if not must:
        assert short.incumbent_samples <= whole.incumbent_samples
    assert short.candidate_samples == whole.candidate_samples or must


@given(st.lists(st.tuples(tenths, tenths), min_size=1, max_size=12))
@example([(0.2, 0.8), (0.6, 0.2), (0.5, 0.8)])
def test_the_short_comparison_of_scores_ends_as_a_whole_round_does(
    scores: list[tuple[float, float]],
) -> None:
    short = decide("final, short", scores, metric="soft")
    assert short.decision == decide("final", scores, metric="soft").decision


def test_a_skipped_task_that_must_pass_is_left_out_of_the_short_comparison() -> None:
    tasks = [GateTask("skipped", must_pass=True), GateTask("other")]
    gate = make_gate("final, short", tasks, GateOptions(rollouts=1))

    def take(draws: Sequence[Draw]) -> list[Sample]:
        assert all(draw.index == 0 for draw in draws)
        return [
            Sample(draw, None, skipped=True)
            if draw.task == "skipped"
            else Sample(draw, draw.arm == "candidate")
            for draw in draws
        ]

    verdict = run_gate(gate, take)
    assert verdict.decision == "accepted"
    assert [row.task for row in verdict.tasks if row.skipped] == ["skipped"]


def test_it_is_settled_soonest_by_the_tasks_that_failed_before() -> None:
    passes = [(True, True)] * 10 + [(False, True)] * 10
    told = decide("final, short", passes, tuple(f"t{n}" for n in range(10, 20)))
    assert told.decision == "accepted"
    assert (told.candidate_samples, told.incumbent_samples) == (20, 1)


def test_without_a_cap_every_round_is_taken() -> None:
    final = plan_final(Settings(), 30)
    assert (final.gate, final.rollouts, final.samples) == ("final", 5, 300)


@pytest.mark.parametrize(
    ("wide", "tight"),
    [
        (Settings(max_rollouts=700), Settings(max_rollouts=350)),
        (Settings(max_calls=700), Settings(max_calls=350)),
    ],
)
def test_a_cap_leaves_something_to_search_with(wide: Settings, tight: Settings) -> None:
    assert plan_final(wide, 70).samples == 140
    short = plan_final(tight, 70)
    assert short.gate == "final, short"
    assert 70 < short.samples < 140


def test_what_the_search_left_over_makes_it_more_thorough() -> None:
    final = plan_final(Settings(max_rollouts=350), 70)
    assert final.within(139).gate == "final, short"
    assert final.within(300).rollouts == 2
    assert final.within(10_000).rollouts == 5
