"""Each setting of the optimizer changes what the default search does: no key is dead there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.search.parameters import TrialParameters
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.document import Document

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

CHANGES: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 5,
    "patience": 1,
    "minibatch_size": 2,
    "contrastive": False,
    "edit_budget": 8,
    "min_edit_budget": 1,
    "schedule": "constant",
    "candidates": 2,
    "pruning": False,
    "memory": False,
    "slow_update": False,
    "slow_update_samples": 1,
    "slow_update_pairs": "unchanged",
    "meta_skill": False,
    "skill_aware": True,
    "preferences": "No jokes.",
    "feedback": "score",
    "max_skill_tokens": 40,
    "seed": 1,
    "gate": "strict",
    "gate_alpha": 0.0001,
    "gate_k0": 5,
    "gate_kc": 5,
    "gate_broad": True,
    "final_rollouts": 3,
}


class Trained:
    """What a training asked, sampled and found."""

    def __init__(self, toy: ModuleType, **settings: Any) -> None:
        world = toy.make_world(tasks=40, weak=0.3, strong=0.9)
        tasks = toy.make_tasks(world)
        sampler = toy.ToySampler(world, tasks)
        model = toy.ToyOptimizer(useful=0.4)
        document = Document.from_bytes(toy.SKILL)
        outcome = Trainer(document, tasks, sampler, model, Settings(**settings)).run()
        self.outcome = outcome
        self.prompts = sorted(prompt for _, _, prompt in model.asked)
        self.taken = set(sampler.taken)
        self.seen = (self.prompts, self.taken, outcome.after.data)


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


def test_templates_of_the_user_are_used(toy: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "reflect_failures.md").write_text("At most $budget, in French.")
    assert any("At most 4, in French." in p for p in Trained(toy, prompts=str(tmp_path)).prompts)


def test_a_refused_bundle_is_taken_apart(toy: ModuleType) -> None:
    """The second line of the bundle breaks val tasks; the first one is of use by itself."""
    statuses = []
    for splitting in (True, False):
        world = toy.make_world(rules=2, weak=0.05, strong=1.0)
        tasks = toy.make_tasks(world)
        honest, val = world.rate, {task.id for task in tasks if task.split == "val"}

        def rate(task: str, text: str, honest: Any = honest, val: Any = val) -> float:
            return 0.05 if task in val and toy.rule(1) in text else float(honest(task, text))

        world.rate = rate
        outcome = Trainer(
            Document.from_bytes(toy.SKILL),
            tasks,
            toy.ToySampler(world, tasks),
            toy.ToyOptimizer(useful=1.0, harmful=0.0),
            Settings(splitting=splitting),
            parameters=TrialParameters(bundle=2, refusals=1),
        ).run()
        statuses.append((outcome.status, toy.rule(0) in outcome.after.text))
        assert toy.rule(1) not in outcome.after.text
    assert statuses == [("accepted", True), ("unchanged", False)]
