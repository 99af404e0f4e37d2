"""Each setting of the optimizer changes what the default search does: no key is dead there."""

from __future__ import annotations

import itertools
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.document import Document

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

CHANGES: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 5,
    "contrastive": False,
    "edit_budget": 8,
    "pruning": False,
    "preferences": "No jokes.",
    "feedback": "score",
    "max_skill_tokens": 40,
    "seed": 1,
    "gate": "strict",
    "final_rollouts": 3,
}


class Trained:
    """Prompts, samples and outcome of a training."""

    def __init__(self, toy: ModuleType, **settings: Any) -> None:
        world = toy.make_world(tasks=24, weak=0.3, strong=0.9)
        tasks = toy.make_tasks(world)
        sampler = toy.ToySampler(world, tasks)
        model = toy.ToyOptimizer(useful=0.4)
        document = Document.from_bytes(toy.SKILL)
        outcome = Trainer(document, tasks, sampler, model, Settings.make(**settings)).run()
        self.outcome = outcome
        self.prompts = sorted(prompt for _, _, prompt in model.asked)
        self.taken = set(sampler.sampled)
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


def test_patience_bounds_the_fresh_looks_that_find_nothing(toy: ModuleType) -> None:
    def looks(patience: int) -> int:
        world = toy.make_world(tasks=4, weak=0.0)
        tasks = toy.make_tasks(world)
        numbers = itertools.count()  # an edit that is proposed again is not a new one

        def propose(form: str, messages: object) -> str:
            edit = {"op": "append", "target": "", "content": f"- Prefer plan {next(numbers)}."}
            return json.dumps({"reasoning": "", "edits": [edit]})

        model = toy.ToyOptimizer(script=propose)
        document, sampler = Document.from_bytes(toy.SKILL), toy.ToySampler(world, tasks)
        settings = Settings(patience=patience)
        steps = Trainer(document, tasks, sampler, model, settings).run().steps
        return max(step.epoch for step in steps)

    assert [looks(patience) for patience in (1, 2)] == [1, 2]


def test_nothing_else_changes_it(toy: ModuleType, plain: Trained) -> None:
    """Neither a second time nor the number of calls at once does."""
    assert Trained(toy, optimizer_workers=1).seen == plain.seen


def test_templates_of_the_user_are_used(toy: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "reflect_failures.md").write_text("At most $budget, in French.")
    assert any("At most 4, in French." in p for p in Trained(toy, prompts=str(tmp_path)).prompts)
