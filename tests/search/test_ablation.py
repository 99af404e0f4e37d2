"""Leaving edits of the working skill out: what stays, what goes, what it is evidence of."""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.search.ablation import Ablation
from pytest_skillopt.search.budget import ABLATION
from pytest_skillopt.search.parameters import TrialParameters

if TYPE_CHECKING:
    from types import ModuleType


class FakeState:
    """A working skill whose samples come from a table of signs, in turn.

    A sign that is a figure is a failure in this line of the test.
    """

    def __init__(self, toy: ModuleType, left: int = 1000, width: int = 1, **signs: str) -> None:
        self.incumbent, self.prior = "all", 1.0
        self.settings = SimpleNamespace(pruning=True)
        self.held = [0]
        self.purse = SimpleNamespace(
            affordable=lambda: max(0, left - self.held[-1]), reserve=self._hold
        )
        self.samples = self.history = self
        self.taken, self.width = 0, width
        self.rounds = 0
        self._toy = toy
        self._signs = {name: itertools.cycle(outcomes) for name, outcomes in signs.items()}

    def _hold(self, purpose: str, samples: int) -> None:
        assert purpose == ABLATION
        self.held.append(samples)

    def set_prior(self, e_value: float) -> None:
        self.prior = e_value

    def set_ablated(self, seen: Any) -> None:
        self.ablated = list(seen)

    def without(self, edit: Any) -> str | None:
        return None if edit.content == "built on" else str(edit.content)

    def carry_out(self, activity: Any) -> None:
        found = None
        with suppress(StopIteration):
            while True:
                _, wanted = activity.send(found)
                self.rounds += 1
                found = [
                    {task: [self._draw(name) for _ in range(n)] for task, n in tasks.items()}
                    for name, tasks in wanted
                ]

    def left_out(self, edit: Any, effects: Any) -> None:
        """For the report."""

    def _draw(self, name: str) -> Any:
        self.taken += 1
        sign = next(self._signs[name])
        (rollout,) = self._toy.make_record("t0", "+" if sign == "+" else "-").rollouts
        place = f"tests/test_toy.py:{sign}" if sign.isdigit() else rollout.location
        request = dataclasses.replace(rollout.request, version=name)
        return dataclasses.replace(rollout, location=place, request=request)


def make_ablation(toy: ModuleType, state: FakeState, *names: str) -> Ablation:
    """With an edit of each name, on a task of its own."""
    # The fake has what leaving out asks of a state, and no more.
    ablation = Ablation(state, TrialParameters())  # type: ignore[arg-type]
    for name in names:
        ablation.add([toy.append(name, f"t {name}")], f"t {name}")
    return ablation


def test_an_edit_that_is_missed_stays_and_one_that_is_not_goes(toy: ModuleType) -> None:
    """The samples of the one that stays are handed on."""
    state = FakeState(toy, all="+", useful="-", idle="+")
    ablation = make_ablation(toy, state, "useful", "idle")
    assert [edit.content for edit in ablation.leave_out()] == ["idle"]
    assert ablation.untested == 0
    ((task, *counts),) = state.ablated
    assert task == "t useful"
    passed, n, without, other_n = counts
    assert (passed, without) == (n, 0)
    assert n == other_n > 1
    assert state.taken <= 2 * 2 * TrialParameters().pairs


def test_many_workers_take_several_pairs_a_round(toy: ModuleType) -> None:
    rounds = []
    for width in (1, 32):
        state = FakeState(toy, width=width, all="+", useful="-", idle="+")
        ablation = make_ablation(toy, state, "useful", "idle")
        assert [edit.content for edit in ablation.leave_out()] == ["idle"]
        rounds.append(state.rounds)
    assert rounds == [4, 2]


def test_samples_that_are_kept_for_it_are_there_beside_trials(toy: ModuleType) -> None:
    state = FakeState(toy, left=18, width=32, all="+", idle="+", useful="-")
    ablation = make_ablation(toy, state, "idle", "useful")
    assert state.held[-1] == 16
    state.carry_out(ablation.sample())
    assert (state.taken, state.held[-1]) == (18, 0)
    assert [edit.content for edit in ablation.judge()] == ["idle"]
    assert ablation.untested == 0


def test_an_edit_whose_samples_were_not_paid_for_is_tested_later(toy: ModuleType) -> None:
    state = FakeState(toy, all="+", idle="+")
    ablation = make_ablation(toy, state, "idle")
    next(ablation.sample())
    assert ablation.judge() == []
    assert ablation.untested == 1
    assert [edit.content for edit in ablation.leave_out()] == ["idle"]


def test_an_edit_that_another_one_builds_on_stays_without_samples(toy: ModuleType) -> None:
    state = FakeState(toy, all="+")
    ablation = make_ablation(toy, state, "built on")
    assert ablation.leave_out() == []
    assert (ablation.untested, state.taken) == (0, 0)


def test_what_stays_unclear_goes(toy: ModuleType) -> None:
    state = FakeState(toy, all="+-", unclear="-+")
    ablation = make_ablation(toy, state, "unclear")
    assert [edit.content for edit in ablation.leave_out()] == ["unclear"]


@pytest.mark.parametrize(
    ("whole", "without"), [("-+++++", "+---+-"), ("++++++", "++--++"), ("++++++", "+++---")]
)
def test_an_edit_is_not_dropped_for_one_pair_of_samples(
    toy: ModuleType, whole: str, without: str
) -> None:
    """It lifts its task from 0.4 to 0.9, and the first pair, or two of six, were bad luck."""
    state = FakeState(toy, all=whole, useful=without)
    assert make_ablation(toy, state, "useful").leave_out() == []
    assert state.taken > 2


@pytest.mark.parametrize(("bar", "pairs"), [(0.0, 2), (2.0, 3)])
def test_a_higher_bar_asks_for_more_pairs(toy: ModuleType, bar: float, pairs: int) -> None:
    state = FakeState(toy, all="+", useful="-")
    ablation = make_ablation(toy, state)
    ablation.add([toy.append("useful", "t0")], "t0", bar)
    assert ablation.leave_out() == []
    assert state.taken == 2 * pairs


def test_of_two_edits_that_stand_in_for_each_other_one_goes(toy: ModuleType) -> None:
    state = FakeState(toy, all="+", one="+", other="+")
    ablation = make_ablation(toy, state)
    ablation.add([toy.append("one", "t0"), toy.append("other", "t0")], "t0")
    assert [edit.content for edit in ablation.leave_out()] == ["other"]
    assert ablation.untested == 1, "whether the first is missed shows without the other"


def test_what_stood_in_for_an_edit_does_not_count_against_it_when_it_is_gone(
    toy: ModuleType,
) -> None:
    state = FakeState(toy, all="+", one="++++---", other="+")
    ablation = make_ablation(toy, state)
    ablation.add([toy.append("one", "t0"), toy.append("other", "t0")], "t0")
    assert [edit.content for edit in ablation.leave_out()] == ["other"]
    assert ablation.leave_out() == []
    assert ablation.untested == 0


def test_an_edit_that_stayed_by_luck_goes_when_it_is_left_out_once_more(toy: ModuleType) -> None:
    state = FakeState(toy, all="+", lucky="--++++++++", useful="-")
    ablation = make_ablation(toy, state, "lucky", "useful")
    assert ablation.leave_out() == []
    assert state.taken == 8
    ablation.doubt()
    assert [edit.content for edit in ablation.leave_out()] == ["lucky"]
    assert state.taken == 2 * TrialParameters().pairs_again + 2 * 3


def test_pairs_from_before_another_edit_joined_do_not_count_against_an_edit(
    toy: ModuleType,
) -> None:
    """Its task came one assertion further with it, and passes now that the other has joined."""
    state = FakeState(toy, all="2", useful="1+11" + "3" * 4, both="+")
    ablation = make_ablation(toy, state, "useful")
    assert ablation.leave_out() == []
    assert state.taken == 8
    ablation.doubt()
    state.incumbent = "both"
    assert ablation.leave_out() == []


def test_samples_are_kept_for_it_until_it_is_done(toy: ModuleType) -> None:
    state = FakeState(toy, all="+", useful="-")
    ablation = make_ablation(toy, state, "useful")
    assert state.held[-1] > 0
    ablation.leave_out()
    assert state.held[-1] == 0


def test_a_late_edit_that_nothing_speaks_for_goes_when_there_are_no_means(toy: ModuleType) -> None:
    state = FakeState(toy, left=1, all="+", late="-")
    ablation = make_ablation(toy, state)
    ablation.add([toy.append("late", "t0")], "t0", TrialParameters().later)
    assert [edit.content for edit in ablation.leave_out()] == ["late"]


def test_without_means_nothing_is_left_out(toy: ModuleType) -> None:
    state = FakeState(toy, left=1, all="+", useful="-")
    assert make_ablation(toy, state, "useful").leave_out() == []
    assert state.taken == 0


def test_the_capital_is_worth_at_most_one_where_no_edit_does_anything(toy: ModuleType) -> None:
    """All outcomes of one edit's pairs with their probabilities, whenever sampling stops."""
    known: dict[tuple[str, ...], float] = {}  # by the samples that were taken

    def capital(signs: tuple[str, ...]) -> float:
        beginnings = (signs[:n] for n in range(2, len(signs) + 1, 2))
        if (found := next((b for b in beginnings if b in known), None)) is None:
            state = FakeState(toy, all="".join(signs[::2]), edit="".join(signs[1::2]))
            make_ablation(toy, state, "edit").leave_out()
            known[found := signs[: state.taken]] = state.prior
        return known[found]

    outcomes = [*itertools.product("+-", repeat=2 * TrialParameters().pairs)]
    capitals = [*map(capital, outcomes)]
    for rate in (0.1, 0.5, 0.9):
        chances = (math.prod(rate if s == "+" else 1 - rate for s in signs) for signs in outcomes)
        assert sum(map(operator.mul, chances, capitals)) <= 1 + 1e-9
