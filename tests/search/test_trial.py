"""The sequential trial of an edit."""

from __future__ import annotations

import dataclasses
import random
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_skillopt.search.parameters import TrialParameters
from pytest_skillopt.search.trial import Trial

if TYPE_CHECKING:
    from types import ModuleType

PARAMETERS = TrialParameters()


def make_trial(toy: ModuleType, tasks: int = 2) -> Trial:
    context = toy.make_context()
    records = [toy.make_record(f"t{i}", "--") for i in range(tasks)]
    return Trial([toy.append("x")], context.document, records, PARAMETERS)


def play(toy: ModuleType, trial: Trial, rate: float, luck: random.Random) -> None:
    while wants := trial.wants():
        trial.tell(
            {t: toy.make_record(t, "+" if luck.random() < rate else "-").rollouts for t in wants}
        )


@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_a_rule_that_turns_its_tasks_wins_and_one_that_does_not_loses(
    toy: ModuleType, tasks: int
) -> None:
    won = {0.0: 0, 0.15: 0, 0.9: 0}
    for seed in range(200):
        for rate in won:
            trial = make_trial(toy, tasks)
            play(toy, trial, rate, random.Random(seed))
            won[rate] += trial.outcome == "won"
            assert trial.samples <= PARAMETERS.most_samples
    assert won[0.0] == 0
    assert won[0.15] <= 12
    assert won[0.9] >= 150


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(0, 5))
def test_a_pass_never_speaks_against_the_edit(outcomes: list[bool], at: int) -> None:
    toy = sys.modules["toy_world"]
    at %= len(outcomes)

    def ratio(passes: list[bool]) -> float:
        trial = make_trial(toy, 1)
        signs = "".join("+" if passed else "-" for passed in passes)
        trial.tell({"t0": toy.make_record("t0", signs).rollouts})
        return trial.log_ratio

    better = [passed or i == at for i, passed in enumerate(outcomes)]
    assert ratio(better) >= ratio(outcomes)


def test_a_task_that_often_passes_takes_more_passes_to_win(toy: ModuleType) -> None:
    """It would pass again without any edit."""

    def passes_to_win(usual: float | None) -> int:
        records = [toy.make_record("t0", "--")]
        rates = None if usual is None else {"t0": usual}
        trial = Trial([toy.append("x")], toy.make_context().document, records, PARAMETERS, rates)
        while trial.wants():
            trial.tell({"t0": toy.make_record("t0", "+").rollouts})
        return trial.samples if trial.outcome == "won" else 99

    known = [passes_to_win(usual) for usual in (None, 0.05, 0.3, 0.5)]
    assert known[0] == known[1] < known[2] < known[3]


def further(record: Any, line: int) -> Any:
    return [dataclasses.replace(r, location=f"tests/test_toy.py:{line}") for r in record.rollouts]


def test_a_failure_further_on_in_the_test_counts(toy: ModuleType) -> None:
    trial = make_trial(toy, 1)
    trial.tell({"t0": further(toy.make_record("t0", "---"), 40)})
    assert trial.outcome == "won"
    assert trial.turned == ("t0",)
    stuck = make_trial(toy, 1)
    stuck.tell({"t0": further(toy.make_record("t0", "---"), 5)})
    assert stuck.outcome == "lost"


def test_a_clearly_better_score_counts(toy: ModuleType) -> None:
    trial = make_trial(toy, 1)
    rollouts = toy.make_record("t0", "---").rollouts
    trial.tell({"t0": [dataclasses.replace(r, score=0.7) for r in rollouts]})
    assert trial.outcome == "won"


def test_samples_that_are_no_measurement_end_the_trial_all_the_same(toy: ModuleType) -> None:
    trial = make_trial(toy, 1)
    for _ in range(20):
        for task in trial.wants():
            (rollout,) = toy.make_record(task, "-").rollouts
            trial.tell({task: [dataclasses.replace(rollout, outcome="skipped")]})
    assert trial.outcome == "lost"
    assert trial.effects == {}
