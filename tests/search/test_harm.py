"""Edits that break tasks which their trials did not look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.edits.update import rebuild
from pytest_skillopt.search.harm import Harm
from pytest_skillopt.search.parameters import TrialParameters
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.document import Document
from pytest_skillopt.skill.edits import Edit, apply

if TYPE_CHECKING:
    from types import ModuleType

WHY = "tasks that had passed failed with it"


@dataclass
class TwoEdged:
    """A world in which one rule helps those who ask for it and breaks a part of the others."""

    world: Any
    harmful: str
    broken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._honest = self.world.rate
        self.world.rate = self.rate

    def rate(self, task: str, text: str) -> float:
        if self.harmful in text and not self.world.needs[task]:
            self.broken.add(task)
            return 0.02
        return float(self._honest(task, text))


def train(toy: ModuleType, world: Any, model: Any, **settings: Any) -> Any:
    tasks = toy.make_tasks(world)
    sampler = toy.ToySampler(world, tasks)
    return Trainer(
        Document.from_bytes(toy.SKILL), tasks, sampler, model, Settings.make(**settings)
    ).run()


def test_an_edit_that_breaks_what_its_trial_did_not_see_is_found_and_dropped(
    toy: ModuleType,
) -> None:
    world = toy.make_world(tasks=80)
    two_edged = TwoEdged(world, harmful=toy.rule(0))
    outcome = train(toy, world, toy.ToyOptimizer(useful=1.0), max_rollouts=3000)
    assert two_edged.broken, "it had joined"
    assert outcome.status == "accepted"
    assert toy.rule(0) not in outcome.after.text
    assert toy.rule(1) in outcome.after.text
    (row,) = (r for r in outcome.edits if r.content == toy.rule(0) and r.status == "dropped")
    assert row.why == WHY


def test_a_suite_that_passes_now_and_then_has_no_harmful_edit(toy: ModuleType) -> None:
    world = toy.make_world(tasks=80, weak=0.4, strong=0.6)
    outcome = train(toy, world, toy.ToyOptimizer(useful=1.0), max_rollouts=1500)
    assert any(row.status in ("accepted", "dropped", "lost") for row in outcome.edits)
    assert not [row for row in outcome.edits if row.why == WHY]


@pytest.mark.parametrize("built_on", [False, True])
def test_an_edit_that_another_one_builds_on_is_not_blamed(toy: ModuleType, built_on: bool) -> None:
    """It cannot be left out, so that nothing is dropped for it."""
    base = Document.from_bytes(toy.SKILL)
    harmful = toy.append("- Skip all else.")
    later = Edit("insert_after", "- Skip all else.", "- But never dates.")
    lines = [harmful, later] if built_on else [harmful]
    tasks = [record.task for record in (toy.make_record(f"t{n}", "+") for n in range(12))]
    outcomes = [
        (base, [(task.id, True) for task in tasks] * 3),
        (apply(base, harmful), [(task.id, False) for task in tasks] * 3),
    ]
    state: Any = SimpleNamespace(
        base=base,
        edits=lines,
        train=tasks,
        purse=SimpleNamespace(affordable=lambda: 0),
        samples=SimpleNamespace(outcomes=lambda: outcomes),
        without=lambda line: rebuild(base, [other for other in lines if other != line]),
    )
    found = Harm(state, TrialParameters()).find(0.07)
    assert found == (None if built_on else harmful)
