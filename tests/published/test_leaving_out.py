"""Leaving edits out one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.published.pruning import leave_out
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.document import Document

if TYPE_CHECKING:
    from types import ModuleType

CAP = 599


@pytest.fixture
def state(toy: ModuleType) -> Any:
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
    return trainer._state


def name(number: int) -> str:
    return f"tests/test_toy.py::test_it[t{number}]"


def two_lines(toy: ModuleType) -> dict[Any, tuple[str]]:
    """Edits by the train task that needs them."""
    return {toy.append(toy.rule(0)): (name(0),), toy.append(toy.rule(1)): (name(8),)}


def test_where_the_means_reach_for_some_lines_the_first_are_left_out(
    toy: ModuleType, state: Any
) -> None:
    tasks = two_lines(toy)
    lines = list(tasks)
    for means, sampled in ((1, [0, 0]), (3, [1, 0]), (4, [1, 1]), (6, [1, 1])):
        before = state.budget.samples
        state.budget.reserve = CAP - before - means
        compared = leave_out(state, state.base, lines, tasks, 1)
        assert [int(c.likelier != 0) for c in compared] == sampled
        assert state.budget.samples - before == 2 * sum(sampled)
        assert not any(c.idle for c in compared), "no sample is no reason to drop an edit"
