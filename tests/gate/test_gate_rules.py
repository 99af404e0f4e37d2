"""The plainer gates, the exact short form, and what all gates do about bad input."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from gate_draws import candidate_passes, noisy, taker, tasks
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.gate.data import Draw, GateOptions, GateTask, Sample, Verdict
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.search.extensions import make_gate

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL = [
    "sequential",
    "strict",
    "confirm",
]


@each_row("name", ALL)
def test_a_clear_gain_is_accepted_and_its_mirror_image_is_not(name: str) -> None:
    better = run_gate(make_gate(name, tasks(10)), taker(candidate_passes))
    worse = run_gate(make_gate(name, tasks(10)), taker(lambda d: not candidate_passes(d)))
    assert (better.decision, worse.decision) == ("accepted", "rejected")
    assert better.gate.endswith(name)


@each_row("name", ALL)
def test_a_tie_is_rejected(name: str) -> None:
    for outcome in (True, False):
        verdict = run_gate(make_gate(name, tasks(4)), taker(lambda draw, o=outcome: o))  # type: ignore[misc]
        assert verdict.decision == "rejected"


@pytest.mark.parametrize("name", ALL)
@given(seed=st.integers(0, 10_000), lift=st.sampled_from([-0.4, 0.0, 0.1, 0.4]))
@settings(max_examples=15)
def test_accepting_means_strictly_better(name: str, seed: int, lift: float) -> None:
    verdict = run_gate(make_gate(name, tasks(6)), taker(noisy(seed, lift)))
    if verdict.accepted:
        assert verdict.before is not None
        assert verdict.after is not None
        assert verdict.after > verdict.before
    assert verdict == run_gate(make_gate(name, tasks(6)[::-1]), taker(noisy(seed, lift)))


@pytest.mark.parametrize("name", ["strict", "confirm"])
@given(seed=st.integers(0, 10_000), extra=st.integers(0, 17))
@settings(max_examples=25)
def test_one_more_pass_of_the_candidate_never_turns_an_acceptance(
    name: str, seed: int, extra: int
) -> None:
    def lucky(draw: Draw) -> bool:
        return (draw.arm == "candidate" and draw.task == f"t{extra % 6}") or plain(draw)

    plain = noisy(seed, 0.2)
    if run_gate(make_gate(name, tasks(6)), taker(plain)).accepted:
        assert run_gate(make_gate(name, tasks(6)), taker(lucky)).accepted


@each_row(
    ("name", "streams"),
    [("strict", {"fresh/7"}), ("confirm", {"fresh/7"})],
)
def test_fixed_gates_take_fresh_samples_of_both_arms(name: str, streams: set[str]) -> None:
    seen: list[Draw] = []

    def take(draws: Sequence[Draw]) -> list[Sample]:
        seen.extend(draws)
        return taker(candidate_passes)(draws)

    run_gate(make_gate(name, tasks(2), GateOptions(rollouts=5), decision=7), take)
    assert {draw.stream for draw in seen} == streams
    assert len(set(seen)) == len(seen) == (40 if name == "confirm" else 20)


def test_confirm_needs_to_win_twice() -> None:
    def once(draw: Draw) -> bool:
        return draw.arm == "candidate" and draw.index < 3

    assert run_gate(make_gate("strict", tasks(4)), taker(once)).accepted
    assert not run_gate(make_gate("confirm", tasks(4)), taker(once)).accepted


def test_off_asks_for_nothing_and_is_marked() -> None:
    verdict = make_gate("off", tasks(3)).ask()
    assert isinstance(verdict, Verdict)
    assert verdict.accepted
    assert not verdict.validated
    assert "not validated" in verdict.reason


@each_row("name", ["strict", "confirm"])
def test_a_task_that_must_pass_blocks_the_plain_gates_too(name: str) -> None:
    def trade(draw: Draw) -> bool:
        return candidate_passes(draw) != (draw.task == "t0")

    assert run_gate(make_gate(name, tasks(12)), taker(trade)).accepted
    verdict = run_gate(make_gate(name, tasks(12, "t0")), taker(trade))
    assert verdict.decision == "rejected"
    assert verdict.reason.startswith("must pass, but broken: t0")


def test_a_task_that_must_pass_and_fails_once_by_chance_does_not_block() -> None:
    def slip(draw: Draw) -> bool:
        if draw.task == "t0":
            return (draw.arm, draw.index) != ("candidate", 0)
        return candidate_passes(draw)

    assert run_gate(make_gate("strict", tasks(12, "t0")), taker(slip)).accepted


# Gaps.


@each_row("name", ALL)
def test_no_task_is_unmeasured(name: str) -> None:
    verdict = make_gate(name, []).ask()
    assert isinstance(verdict, Verdict)
    assert verdict.decision == "unmeasured"


@each_row("name", ALL)
def test_a_lost_sample_is_replaced_by_the_next_index(name: str) -> None:
    def lossy(draw: Draw) -> bool | None:
        return None if (draw.task, draw.index) == ("t0", lost) else candidate_passes(draw)

    # The sequential gate has seen enough after one sample of each.
    lost = 0 if name == "sequential" else 1

    verdict = run_gate(make_gate(name, tasks(30)), taker(lossy))
    assert verdict.accepted
    assert verdict.tasks[0].errors >= 1
    assert verdict.tasks[0].incumbent_n >= 1 + lost


@each_row("name", ALL)
def test_too_many_errors_are_unmeasured(name: str) -> None:
    def lossy(draw: Draw) -> bool | None:
        return None if draw.index == 0 else candidate_passes(draw)

    verdict = run_gate(make_gate(name, tasks(12)), taker(lossy))
    assert verdict.decision == "unmeasured"
    assert "infrastructure errors (at most 5% are allowed)" in verdict.reason


@each_row("name", ALL)
def test_a_task_skipped_under_both_arms_is_left_out_and_listed(name: str) -> None:
    def take(draws: Sequence[Draw]) -> list[Sample]:
        return [
            Sample(d, None, skipped=True) if d.task == "t1" else Sample(d, candidate_passes(d))
            for d in draws
        ]

    verdict = run_gate(make_gate(name, tasks(6)), take)
    assert verdict.accepted
    assert [t.task for t in verdict.tasks if t.skipped] == ["t1"]
    assert verdict.after == 1.0


@each_row("name", ALL)
@each_row("arm", ["incumbent", "candidate"])
def test_a_task_skipped_under_one_arm_is_unmeasured(name: str, arm: str) -> None:
    def take(draws: Sequence[Draw]) -> list[Sample]:
        return [
            Sample(d, None, skipped=True)
            if (d.task, d.arm) == ("t1", arm)
            else Sample(d, candidate_passes(d))
            for d in draws
        ]

    verdict = run_gate(make_gate(name, tasks(6)), take)
    assert verdict.decision == "unmeasured"
    assert f"t1 was skipped under the {arm}" in verdict.reason


@each_row("name", ALL)
def test_every_task_skipped_is_unmeasured(name: str) -> None:
    verdict = run_gate(
        make_gate(name, tasks(3)), lambda draws: [Sample(d, None, skipped=True) for d in draws]
    )
    assert verdict.decision == "unmeasured"
    assert verdict.reason == "every task was skipped"


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="no gate 'lenient'; the gates are sequential"):
        make_gate("lenient", tasks(1))
    with pytest.raises(ValueError, match="t0 is in the suite twice"):
        make_gate("sequential", tasks(1) * 2)


def test_samples_that_were_not_asked_for_or_contradict_are_refused() -> None:
    gate = make_gate("sequential", tasks(1))
    asked = gate.ask()
    assert isinstance(asked, tuple)
    gate.tell([Sample(asked[0], True, 1.0)])
    gate.tell([Sample(asked[0], True, 1.0)])
    with pytest.raises(ValueError, match="told before"):
        gate.tell([Sample(asked[0], False)])
    with pytest.raises(ValueError, match="not asked for"):
        gate.tell([Sample(Draw("candidate", "t1", "screen", 0), True)])
    assert gate.ask() == asked


@each_row("side", [True, False])
def test_requests_of_one_kind_do_not_pay_for_those_of_the_other(side: bool) -> None:
    """The mean rises, no single task credibly broke, and yet one side is worse off."""
    suite = [GateTask(f"t{n}", trigger=side if n < 4 else not side) for n in range(20)]

    def passes(draw: Draw) -> bool:
        if int(draw.task[1:]) >= 4:
            return draw.arm == "candidate"
        return draw.arm == "incumbent" or draw.index >= 2

    verdict = run_gate(make_gate("sequential", suite, GateOptions()), taker(passes))
    where = "should be" if side else "should not be"
    falls = [task.incumbent_score - task.candidate_score for task in verdict.tasks]
    fall = sum(fall for fall in falls if fall > 0)
    assert verdict.decision == "rejected"
    assert verdict.reason == (
        f"the skill is asked for less well where it {where}: "
        f"the mean fell by {100 * fall / 4:.1f} points"
    )


def test_one_failure_of_one_near_miss_is_no_fall_of_its_kind() -> None:
    """Its kind is sampled again, and then passes as before."""
    suite = [GateTask(f"t{n}", trigger=n >= 4) for n in range(20)]

    def passes(draw: Draw) -> bool:
        if int(draw.task[1:]) >= 4:
            return draw.arm == "candidate"
        return (draw.arm, draw.task, draw.index) != ("candidate", "t0", 0)

    verdict = run_gate(make_gate("sequential", suite, GateOptions()), taker(passes))
    assert verdict.decision == "accepted", verdict.reason
    near = [task.candidate_n for task in verdict.tasks if task.task in ("t0", "t1", "t2", "t3")]
    assert min(near) >= 2


@each_row("name", ALL)
def test_no_reason_takes_statistics_for_granted(name: str) -> None:
    reasons = [
        run_gate(make_gate(name, tasks(6)), taker(noisy(seed, lift))).reason
        for seed in range(6)
        for lift in (-0.4, 0.0, 0.3, 0.5)
    ]
    for reason in reasons:
        assert not re.search(
            r"evidence|e-value|alpha|\bp =|is needed\b(?<! times is needed)", reason
        )
