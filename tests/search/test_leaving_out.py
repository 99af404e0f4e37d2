"""Leaving edits out one by one, and what is known of a task over the whole search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.search.parameters import TrialParameters
from pytest_skillopt.search.prune import leave_out
from pytest_skillopt.search.standing import Standing
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.document import Document

if TYPE_CHECKING:
    from types import ModuleType

CAP = 599


@pytest.fixture
def bench(toy: ModuleType) -> Any:
    """In a world without luck, with two rules that a train task each needs."""
    world = toy.make_world(strong=1.0, weak=0.0)
    tasks = toy.make_tasks(world)
    trainer = Trainer(
        Document.from_bytes(toy.SKILL),
        tasks,
        toy.ToySampler(world, tasks),
        toy.ToyOptimizer(),
        Settings(max_rollouts=CAP),
    )
    return trainer._bench


def name(number: int) -> str:
    return f"tests/test_toy.py::test_it[t{number}]"


def two_lines(toy: ModuleType) -> dict[Any, tuple[str]]:
    """Edits by the train task that needs them."""
    return {toy.append(toy.rule(0)): (name(0),), toy.append(toy.rule(1)): (name(8),)}


def test_only_what_is_not_certain_yet_is_sampled(toy: ModuleType, bench: Any) -> None:
    tasks = two_lines(toy)
    lines = list(tasks)
    known = {lines[0]: 2.5, lines[1]: -2.5}
    missed, idle = leave_out(bench, bench.base, lines, tasks, 4, known=known)
    assert bench.allowance.samples == 0
    assert (missed.likelier, idle.likelier) == (2.5, -2.5)
    assert (missed.idle, idle.idle) == (False, True)

    longer, still = leave_out(bench, bench.base, lines, tasks, 4, known=known, enough=5.0)
    assert longer.likelier >= 5.0
    assert still.likelier == -2.5
    alone = leave_out(bench, bench.base, lines, {lines[0]: tasks[lines[0]]}, 4, enough=5.0)
    assert alone[0].likelier > longer.likelier - 2.5
    assert bench.allowance.samples > 0


def test_what_is_known_counts_beside_the_fresh_samples(toy: ModuleType, bench: Any) -> None:
    tasks = two_lines(toy)
    line, *_ = lines = list(tasks)
    told = {line: tasks[line]}
    (plain,) = leave_out(bench, bench.base, lines, told, 1)
    (added,) = leave_out(bench, bench.base, lines, told, 1, known={line: 0.5})
    assert added.likelier == pytest.approx(plain.likelier + 0.5)
    assert added.own_evidence == pytest.approx(plain.own_evidence)


def test_where_the_means_reach_for_some_lines_the_first_are_left_out(
    toy: ModuleType, bench: Any
) -> None:
    tasks = two_lines(toy)
    lines = list(tasks)
    for means, sampled in ((1, [0, 0]), (3, [1, 0]), (4, [1, 1]), (6, [1, 1])):
        before = bench.allowance.samples
        bench.allowance.reserve = CAP - before - means
        compared = leave_out(bench, bench.base, lines, tasks, 1)
        assert [int(c.likelier != 0) for c in compared] == sampled
        assert bench.allowance.samples - before == 2 * sum(sampled)
        assert not any(c.idle for c in compared), "no sample is no reason to drop an edit"


def test_the_usual_rate_is_that_of_all_samples_whatever_the_skill_was(
    toy: ModuleType, bench: Any
) -> None:
    standing = Standing(bench, TrialParameters())
    assert standing.usual_rate(name(0)) == 0.5
    standing.settle({name(0): toy.make_record(name(0), "--")})
    assert standing.usual_rate(name(0)) == pytest.approx(0.5 / 3)
    standing.settle({name(0): toy.make_record(name(0), "+++")})
    standing.forget([name(0)])
    assert standing.usual_rate(name(0)) == pytest.approx(3.5 / 6)
    assert standing.usual_rate(name(8)) == 0.5
