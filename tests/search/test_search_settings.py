"""Each setting of the optimizer changes what the default search does: no key is dead there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from types import ModuleType

CHANGES: dict[str, Any] = {
    "edit_budget": 8,
    "preferences": "No jokes.",
    "max_skill_tokens": 40,
    "seed": 1,
    "gate": "strict",
    "final_rollouts": 3,
    "max_rollouts": 120,
}


class Trained:
    """Prompts, samples and outcome of a training."""

    def __init__(self, toy: ModuleType, **settings: Any) -> None:
        world = toy.make_world(tasks=16, weak=0.3, strong=0.9)
        tasks = toy.make_tasks(world)
        sampler = toy.ToySampler(world, tasks)
        model = toy.ToyOptimizer(useful=0.4)
        document = Version.from_bytes(toy.SKILL)
        given = Settings(**{"max_rollouts": 180, **settings})
        outcome = Trainer(document, tasks, sampler, model, given).run()
        self.outcome = outcome
        self.prompts = sorted(prompt for _, _, prompt in model.asked)
        self.taken = set(sampler.sampled)
        self.seen = (self.prompts, self.taken, outcome.after.main.data)


@pytest.fixture(scope="module")
def plain() -> Trained:
    return Trained(sys.modules["toy_world"])


@pytest.mark.parametrize("name", CHANGES)
def test_it_changes_what_the_default_search_does(
    toy: ModuleType, plain: Trained, name: str
) -> None:
    assert plain.outcome.status == "accepted"
    assert Trained(toy, **{name: CHANGES[name]}).seen != plain.seen


def test_nothing_else_changes_it(toy: ModuleType, plain: Trained) -> None:
    """Neither a second time nor the number of calls at once does."""
    assert Trained(toy, optimizer_workers=1).seen == plain.seen
