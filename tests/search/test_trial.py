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
from pytest_skillopt.search.trial import Pool, Trial
from pytest_skillopt.skill.document import Document

if TYPE_CHECKING:
    from types import ModuleType

PARAMETERS = TrialParameters()


def make_trial(toy: ModuleType, tasks: int = 2, before: str = "---") -> Trial:
    records = [toy.make_record(f"t{i}", before) for i in range(tasks)]
    edit = toy.append("x", *(f"t{i}" for i in range(tasks)))
    document = Document.from_bytes(toy.SKILL)
    return Trial([edit], document, document, records, PARAMETERS, PARAMETERS.upper)


def play(toy: ModuleType, trial: Trial, rate: float, luck: random.Random) -> int:
    taken = 0
    while wants := trial.wants():
        taken += len(wants)
        trial.tell(
            {t: toy.make_record(t, "+" if luck.random() < rate else "-").rollouts for t in wants}
        )
    return taken


@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_a_rule_that_turns_its_tasks_wins_and_one_that_does_not_loses(
    toy: ModuleType, tasks: int
) -> None:
    won = {0.0: 0, 0.15: 0, 0.9: 0}
    for seed in range(100):
        for rate in won:
            trial = make_trial(toy, tasks)
            taken = play(toy, trial, rate, random.Random(seed))
            won[rate] += trial.outcome == "won"
            assert taken <= PARAMETERS.most_samples
    assert won[0.0] == 0
    assert won[0.15] <= 15
    assert won[0.9] >= 80


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


def test_a_task_that_passed_before_takes_more_passes_to_win(toy: ModuleType) -> None:
    """It would pass again without any edit."""

    def passes_to_win(before: str) -> int:
        trial, taken = make_trial(toy, 1, before), 0
        while trial.wants():
            taken += 1
            trial.tell({"t0": toy.make_record("t0", "+").rollouts})
        return taken if trial.outcome == "won" else 99

    assert passes_to_win("----") < passes_to_win("+---") < passes_to_win("++--")
    assert passes_to_win("++--") == PARAMETERS.most_per_task, "no more samples could say more"


@pytest.mark.parametrize("older", [False, True])
def test_a_task_that_does_better_is_compared_with_the_skill_as_it_is_now(
    toy: ModuleType, older: bool
) -> None:
    """Its failures were bad luck, or another edit has joined that it needed."""
    trial = make_trial(toy, 1)
    now = trial.base.version
    trial.before["t0"] = of_version(trial.before["t0"], "older" if older else now)
    passed = {"t0": of_version(toy.make_record("t0", "+"), now).rollouts}
    assert trial.to_compare(every=True) == [], "nothing has done better yet"
    trial.tell(passed)
    assert trial.to_compare(every=True) == ["t0"]
    assert trial.to_compare(every=False) == (["t0"] if older else [])
    ratio = trial.log_ratio
    trial.compare(passed)
    assert trial.to_compare(every=True) == []
    assert trial.log_ratio < ratio
    assert trial.outcome == "open"
    assert trial.wants() == ({} if older else {"t0": 1}), "the older skill's failures say nothing"


@pytest.mark.parametrize("sign", ["+", "-"])
def test_a_failure_under_an_older_skill_counts_only_beside_a_new_one(
    toy: ModuleType, sign: str
) -> None:
    known = of_version(toy.make_record("t0", "-+-"), "older")
    record = known.updated(toy.make_record("t0", sign).rollouts)
    assert (record.passed, record.failed) == ((1, 0) if sign == "+" else (0, 2))
    assert known.updated(()) == known


def of_version(record: Any, version: str) -> Any:
    requests = [dataclasses.replace(r.request, version=version) for r in record.rollouts]
    pairs = zip(record.rollouts, requests, strict=True)
    rollouts = tuple(dataclasses.replace(r, request=request) for r, request in pairs)
    return dataclasses.replace(record, rollouts=rollouts)


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


def keys(edits: list[Any]) -> list[str]:
    return [edit.content for edit in edits]


def test_an_edit_that_lost_is_tried_once_more_when_it_is_proposed_again(toy: ModuleType) -> None:
    pool, edit = Pool(tries=2), toy.append("x", "t0")
    for lost in (1, 2):
        pool.add(edit)
        pool.take([edit])
        pool.lose([edit])
        assert pool.waiting == []
        assert pool.is_spent(edit) == (lost == 2)
    assert keys(pool.lost_for("t0")) == ["x"]
    assert pool.lost_for("t1") == []


def test_what_a_task_asked_for_waits_again_once_an_edit_has_turned_it(toy: ModuleType) -> None:
    pool, edit = Pool(tries=1), toy.append("x", "t0")
    pool.lose([edit])
    assert pool.is_spent(edit)
    pool.reopen(["t1"])
    assert pool.waiting == []
    pool.reopen(["t0"])
    assert not pool.is_spent(edit)
    assert keys(pool.waiting) == ["x"]


def test_edits_that_say_the_same_wait_as_one_and_the_best_supported_first(toy: ModuleType) -> None:
    pool = Pool(tries=1)
    for text, task in (("Use tabs.", "t0"), ("Write dates with the year first.", "t0"),
                       ("Write dates with the year first!", "t1")):  # fmt: skip
        pool.add(toy.append(text, task))
    assert keys(pool.waiting) == ["Write dates with the year first.", "Use tabs."]
    assert pool.waiting[0].tasks == ("t0", "t1")
