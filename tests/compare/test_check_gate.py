"""The check of a person's edit: its rule, and the e-value of a suite."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gate_draws import candidate_passes, noisy, taker, tasks
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.compare.gates import RegressionCheck, suite_log_e
from pytest_skillopt.gate.data import Draw, GateOptions, Sample, Verdict
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.gate.statistics import log_e
from pytest_skillopt.model.purse import Amounts, Purse
from pytest_skillopt.model.types import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def check(
    passes: Callable[[Draw], bool], n: int = 12, options: GateOptions | None = None
) -> Verdict:
    return run_gate(RegressionCheck(tasks(n), options), taker(passes))


def test_a_broken_task_is_worse_and_named_whatever_was_fixed() -> None:
    def trade(draw: Draw) -> bool:
        return candidate_passes(draw) != (draw.task == "t0")

    verdict = check(trade)
    assert verdict.decision == "rejected"
    assert verdict.reason.startswith("worse on t0 (passed")
    assert verdict.names("broken") == ("t0",)


def test_a_rise_is_told_without_the_chance_of_a_loss() -> None:
    assert check(candidate_passes).reason.endswith("0.0 % to 100.0 % (+100.0 points)")


def test_a_thin_loss_over_the_whole_suite_is_seen_by_the_exact_test() -> None:
    def thin(draw: Draw) -> bool:
        return draw.arm == "incumbent" or draw.index % 3 > 0

    verdict = check(thin, n=60)
    assert verdict.decision == "rejected"


def test_a_loss_that_may_be_chance_is_not_enough_evidence() -> None:
    def slight(draw: Draw) -> bool:
        first = (draw.arm, draw.stream, draw.index) == ("candidate", "tape", 0)
        return not (first and draw.task in ("t0", "t1", "t2"))

    verdict = check(slight, n=8, options=GateOptions(rollouts=1))
    assert verdict.decision == "unmeasured"
    assert "may be chance" in verdict.reason
    said = r"rounds of both skills, would tell: repeat the command with --skillopt-rollouts=(\d+)$"
    found = re.search(said, verdict.reason)
    assert found, verdict.reason
    assert int(found[1]) > 1
    gate = RegressionCheck(tasks(8), GateOptions(rollouts=1))
    gate.purse = Purse(Amounts(rollouts=17))
    cut = run_gate(gate, paid_by(gate.purse, taker(slight)))
    assert "a cap leaves 1 round of 2; repeat the command to go on" in cut.reason


def capped(seed: int, rounds: int) -> tuple[Verdict, Purse]:
    """Check a slightly worse version of seven tasks under a cap of so many rounds."""
    gate = RegressionCheck(tasks(7))
    purse = gate.purse = Purse(Amounts(rollouts=2 * 7 * rounds))
    return run_gate(gate, paid_by(purse, taker(noisy(seed, -0.1)))), purse


def paid_by(
    purse: Purse, answers: Callable[[Sequence[Draw]], list[Sample]]
) -> Callable[[Sequence[Draw]], list[Sample]]:
    """Count the samples in a purse."""

    def take(draws: Sequence[Draw]) -> list[Sample]:
        for draw in draws:
            purse.count_sample(str(draw), Usage(), 0.0)
        return answers(draws)

    return take


@each_row("rounds", [3, 4, 6])
def test_tasks_that_look_broken_leave_a_cap_its_rounds(rounds: int) -> None:
    for seed in range(20):
        verdict, purse = capped(seed, rounds)
        assert verdict.e_value is not None, seed
        assert purse.samples <= purse.caps.rollouts


def test_a_cap_below_the_rounds_of_a_look_decides_no_slight_loss() -> None:
    for seed in range(20):
        verdict, purse = capped(seed, 2)
        assert verdict.decision != "accepted"
        assert purse.samples <= purse.caps.rollouts


def test_an_unchanged_skill_is_seldom_called_worse() -> None:
    outcomes = [check(noisy(seed, 0.0)).decision for seed in range(30)]
    assert outcomes.count("rejected") <= 1
    assert outcomes.count("accepted") >= 24


def test_a_dead_task_makes_nothing_worse_in_a_check() -> None:
    check = RegressionCheck(tasks(20), GateOptions())
    verdict = run_gate(check, taker(lambda draw: None if draw.task == "t7" else True))
    assert verdict.decision == "accepted"
    assert "t7" in verdict.reason
    worse = taker(lambda draw: None if draw.task == "t7" else not candidate_passes(draw))
    assert run_gate(RegressionCheck(tasks(20), GateOptions()), worse).decision == "rejected"


def test_suite_counts_every_task_also_those_not_tried() -> None:
    untried = log_e(0, 0, 0, 3)
    tried = log_e(5, 5, 0, 5)
    assert untried < 0
    assert suite_log_e([tried, untried], 2) < suite_log_e([tried, 0.0], 2)


@given(st.lists(st.floats(-5, 20), min_size=1, max_size=20), st.randoms())
def test_suite_evidence_knows_no_order(log_es: list[float], shuffler: object) -> None:
    shuffled = list(log_es)
    shuffler.shuffle(shuffled)  # type: ignore[attr-defined]
    assert suite_log_e(log_es, len(log_es)) == suite_log_e(shuffled, len(shuffled))


@each_row("lost", [1, 2])
def test_errors_under_a_cap_of_whole_rounds_cost_no_verdict_and_are_no_failures(lost: int) -> None:
    """The cap pays for no sample in their place: a few are missing in the last round."""
    verdict, purse = with_errors(lost, GateOptions())
    assert verdict.decision == "accepted"
    assert verdict.reason == "nothing is credibly worse: 100.0 % to 100.0 % (0.0 points)"
    assert purse.samples == purse.caps.rollouts
    assert verdict.candidate_samples == 36 - lost


def test_a_task_that_a_cap_leaves_without_a_sample_is_never_called_no_worse() -> None:
    verdict, _ = with_errors(1, GateOptions(rollouts=1))
    assert verdict.decision == "unmeasured"
    assert verdict.reason.startswith("a cap leaves no sample of t0: ")


def with_errors(lost: int, options: GateOptions) -> tuple[Verdict, Purse]:
    """Check twelve tasks under a cap of whole rounds; the first samples of the edit are errors."""
    gate = RegressionCheck(tasks(12), options)
    purse = gate.purse = Purse(Amounts(rollouts=2 * 12 * options.rollouts))
    errors = lost

    def take(draws: Sequence[Draw]) -> list[Sample]:
        nonlocal errors
        samples = []
        for draw in draws:
            purse.count_sample(str(draw), Usage(), 0.0)
            is_lost = errors > 0 and draw.arm == "candidate"
            errors -= is_lost
            samples.append(Sample(draw, None if is_lost else True))
        return samples

    return run_gate(gate, take), purse
