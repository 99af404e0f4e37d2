"""The posterior of a search: what holds for any samples, and what a clear case says."""

from __future__ import annotations

import itertools
import math
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.search.model import Model, Outcome
from pytest_skillopt.search.places import Place

if TYPE_CHECKING:
    from collections.abc import Callable

TASKS = 6


def outcome(task: int, ideas: frozenset[int], *, passed: bool) -> Outcome:
    return Outcome(task, ideas, None if passed else Place())


def learned(rates: Callable[[int, frozenset[int]], float], ideas: int, seed: int = 0) -> Model:
    """A model that has taken fifteen rounds of samples of tasks with these pass rates."""
    luck = random.Random(seed)
    model = Model(TASKS)
    for number in range(ideas):
        idea = model.add()
        model.propose(idea, number % TASKS)
    model.called(ideas)
    start = frozenset[int]()
    model.learn(
        [outcome(t, start, passed=luck.random() < rates(t, start)) for t in range(TASKS)] * 2
    )
    for _ in range(15):
        outcomes = []
        for job in model.round(12):
            drawn = start
            for factor in job.factors:
                sets, chances = zip(*factor, strict=True)
                drawn |= luck.choices(sets, chances)[0]
            outcomes.append(outcome(job.task, drawn, passed=luck.random() < rates(job.task, drawn)))
        model.learn(outcomes)
        model.settle()
    return model


@st.composite
def models(draw: st.DrawFn) -> Model:
    """A model with up to five ideas, some of them bound to each other, and up to twenty samples."""
    model = Model(TASKS)
    ideas = draw(st.integers(1, 5))
    for _ in range(ideas):
        model.propose(model.add(), draw(st.integers(0, TASKS - 1)), draw(st.integers(1, 3)))
    pairs = st.sampled_from(list(itertools.combinations(range(ideas), 2)) or [(0, 0)])
    for one, other in draw(st.sets(pairs, max_size=2)):
        if one != other:
            draw(st.sampled_from([model.forbid, model.require]))(other, one)
    model.called(draw(st.integers(1, 40)))
    documents = st.frozensets(st.integers(0, ideas - 1), max_size=ideas)
    places = st.none() | st.builds(Place, st.integers(0, 2), st.integers(0, 3))
    outcomes = st.builds(Outcome, st.integers(0, TASKS - 1), documents, places)
    model.learn(draw(st.lists(outcomes, max_size=20)))
    model.settle()
    return model


@settings(deadline=None, max_examples=60)
@given(models())
def test_rates_and_chances_are_probabilities(model: Model) -> None:
    for idea in model.state:
        assert 0 <= model.good(idea) <= 1
        assert all(0 < rate < 1 for rate in model.rates({idea}))
    assert model.kept <= model.state.keys()


@settings(deadline=None, max_examples=60)
@given(models())
def test_documents_are_drawn_by_known_chances(model: Model) -> None:
    for job in model.round(12):
        for factor in job.factors:
            assert math.fsum(chance for _, chance in factor) == pytest.approx(1)
            assert all(chance > 0 for _, chance in factor)


def require_fair_bets(model: Model, old: Callable[[frozenset[int]], bool] | None = None) -> None:
    """If the draw says nothing, what a gambler expects is what was staked."""
    for job in model.round(12)[:6]:
        total = 0.0
        expected = dict.fromkeys((True, False), 0.0)
        for draw in itertools.product(*job.factors):
            chance = math.prod(chance for _, chance in draw)
            ideas = frozenset(idea for sets, _ in draw for idea in sets)
            bet = model.bet(job, ideas, lambda ideas: not (old and old(ideas)))
            if old and old(ideas):
                assert bet is None
                continue
            drawn, mean = bet or (0.5, 0.5)
            assert 0 < drawn < 1
            assert 0 < mean < 1
            total += chance
            expected[True] += chance * drawn / mean
            expected[False] += chance * (1 - drawn) / (1 - mean)
        assert expected[True] == pytest.approx(total)
        assert expected[False] == pytest.approx(total)


@settings(deadline=None, max_examples=60)
@given(models())
def test_a_bet_is_fair(model: Model) -> None:
    require_fair_bets(model)


@settings(deadline=None, max_examples=40)
@given(models(), st.integers(1, 3))
def test_a_bet_on_a_new_document_is_fair(model: Model, step: int) -> None:
    """Documents that were sampled before could not have been drawn for this bet."""
    require_fair_bets(model, lambda ideas: sum(ideas) % (step + 1) == 0)


@each_row("seed", range(5))
def test_a_bet_is_fair_where_lines_need_each_other(seed: int) -> None:
    """The question that it is asked may not depend on the draw."""
    require_fair_bets(learned(lambda t, ideas: 0.9 if {0, 1} <= ideas else 0.1, ideas=4, seed=seed))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 10**6))
def test_alternatives_are_never_in_one_document(one: int, other: int, seed: int) -> None:
    model = Model(TASKS)
    for number in range(5):
        model.propose(model.add(), number)
    model.called(5)
    needed = (other + 1) % 5
    if one != other:
        model.forbid(one, other)
    if needed != one:
        model.require(one, needed)
    model.learn([outcome(task, frozenset(), passed=False) for task in range(TASKS)])
    luck = random.Random(seed)
    for job in model.round(20):
        drawn = frozenset[int]()
        for factor in job.factors:
            sets, chances = zip(*factor, strict=True)
            drawn |= luck.choices(sets, chances)[0]
        assert one == other or not {one, other} <= drawn
        assert one not in drawn or needed in drawn


def test_a_task_that_is_left_out_is_not_sampled() -> None:
    model = Model(TASKS)
    model.propose(model.add(), 2)
    model.called(1)
    model.leave_out(2)
    assert 2 not in {job.task for job in model.round(12)}
