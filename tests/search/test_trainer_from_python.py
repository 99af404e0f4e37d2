"""The trainer over a plain executor, as a program without pytest uses it."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from tables import each_row

from pytest_skillopt import Completion, Rollout, Trainer, Version, train
from pytest_skillopt.rollouts.executor import FunctionExecutor
from pytest_skillopt.rollouts.sampler import Sampler
from pytest_skillopt.settings import Settings
from pytest_skillopt.tasks.splits import assign_splits
from pytest_skillopt.tasks.task import SkillTask

if TYPE_CHECKING:
    from pytest_skillopt.rollouts.rollout import RolloutRequest

START = Version.from_text("---\nname: g\ndescription: G.\n---\n# G\n\nSay hello.\n")
RULE = "End with an exclamation mark."
TASKS = [SkillTask(id=f"task {i}", split=("train", "val")[i % 2]) for i in range(24)]


def run(request: RolloutRequest, text: str) -> Rollout:
    rate = 0.9 if RULE in text else 0.2
    if random.Random(request.seed).random() < rate:
        return Rollout(request, "passed", 1.0)
    return Rollout(request, "failed", 0.0, message="no exclamation mark")


class Optimizer:
    name, fingerprint, simulated = "mine:1", "1", True

    def complete(self, messages: Any, *, sample: str, **details: Any) -> Completion:
        luck = random.Random(sample)
        line = RULE if luck.random() < 0.5 else f"Mind matter {luck.randrange(90)}."
        edit = {"op": "append", "target": "", "content": line}
        return Completion(json.dumps({"reasoning": "", "edits": [edit], "text": line}))


def trained(executor: FunctionExecutor, **settings: Any) -> Any:
    return Trainer(START, TASKS, executor, Optimizer(), Settings(**settings)).run()


def test_an_executor_or_a_function_is_all_that_is_wanted() -> None:
    executor = FunctionExecutor(run)
    outcome = trained(executor, max_rollouts=200)
    assert outcome.status == "accepted"
    assert RULE in outcome.after.main.text
    assert outcome.samples == executor.ran
    assert train(START, TASKS, run, Optimizer(), max_rollouts=200) == outcome


def test_a_setting_that_is_none_is_named() -> None:
    with pytest.raises(TypeError, match="max_rollout'"):
        train(START, TASKS, run, Optimizer(), max_rollout=500)


@each_row("cap", [1, 95, 130, 250])
@each_row("search", ["trials", "batch"])
def test_a_cap_is_never_passed(cap: int, search: str) -> None:
    executor = FunctionExecutor(run)
    outcome = trained(executor, max_rollouts=cap, search=search)
    assert executor.ran <= cap
    assert outcome.status in ("accepted", "unchanged", "rejected")
    assert (outcome.after == START) == (outcome.status != "accepted")


def test_a_cap_of_the_sampler_is_planned_with_too() -> None:
    outcomes = []
    for limits, settings in (
        (Settings(), Settings(max_rollouts=200)),
        (Settings(max_rollouts=200), Settings()),
    ):
        sampler = Sampler(FunctionExecutor(run), TASKS, settings=limits)
        outcomes.append(Trainer(START, TASKS, sampler, Optimizer(), settings).run())
    assert outcomes[0].status == outcomes[1].status == "accepted"
    assert outcomes[0].after == outcomes[1].after
    assert outcomes[0].samples == outcomes[1].samples


def test_a_sampler_that_is_used_up_is_not_one_without_a_cap() -> None:
    executor = FunctionExecutor(run)
    sampler = Sampler(executor, TASKS, settings=Settings(max_rollouts=1))
    version = sampler.add_version("SKILL.md", START)
    sampler.take([sampler.request("task 0", version, "eval", 0)])
    outcome = Trainer(START, TASKS, sampler, Optimizer(), Settings()).run()
    assert (outcome.status, executor.ran) == ("unchanged", 1)
    assert "--skillopt-max-rollouts=1 is reached" in outcome.reason


def test_a_request_is_handed_over_once() -> None:
    """An executor that keeps no record runs nothing twice."""
    submitted: list[str] = []

    class Naive(FunctionExecutor):
        def submit(self, requests: Any) -> None:
            requests = list(requests)
            submitted.extend(request.key for request in requests)
            super().submit(requests)

    trained(Naive(run), max_rollouts=150)
    assert len(submitted) == len(set(submitted))


def test_tasks_without_a_split_are_said_how_to_get_one() -> None:
    bare, half = (
        [SkillTask(f"task {i}", split=split) for i in range(30)] for split in ("", "train")
    )
    for given, missing in ((bare, "train"), (half, "val")):
        with pytest.raises(ValueError, match=f"no {missing} task: .*assign_splits"):
            Trainer(START, given, FunctionExecutor(run), Optimizer(), Settings())
    tasks, notes = assign_splits(bare, "2:1:1")
    assert {task.split for task in tasks} == {"train", "val", "test"}
    assert not notes


def test_what_the_function_raises_ends_the_training() -> None:
    def broken(request: RolloutRequest, text: str) -> Rollout:
        raise ZeroDivisionError("a bug of the simulation")

    with pytest.raises(ZeroDivisionError, match="a bug of the simulation"):
        trained(FunctionExecutor(broken))
