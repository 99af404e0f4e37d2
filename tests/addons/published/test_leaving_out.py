"""Leaving edits out one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.addons.published.search_batch import idle_edits
from pytest_skillopt.edits.update import rebuild
from pytest_skillopt.search.budget import Purpose
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


def test_where_the_means_do_not_reach_for_all_edits_none_is_left_out(
    toy: ModuleType, state: Any
) -> None:
    lines = [toy.append("- Be nice.", name(0)), toy.append("- Be polite.", name(8))]
    state.adopt(rebuild(state.base, lines), lines)
    for means, idle in ((1, []), (3, []), (4, lines), (6, lines)):
        before = state.budget.samples
        state.budget.hold(Purpose.FINAL, CAP - before - means)
        assert idle_edits(state, 1) == idle
        assert state.budget.samples - before == 2 * len(idle)


def test_what_its_task_needs_is_not_idle(toy: ModuleType, state: Any) -> None:
    lines = [toy.append(toy.rule(0), name(0)), toy.append("- Be polite.", name(8))]
    state.adopt(rebuild(state.base, lines), lines)
    assert idle_edits(state, 6) == lines[1:]
