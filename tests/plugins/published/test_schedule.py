"""The edit budget over the steps."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import assert_refused

from pytest_skillopt.plugins.published.merging import select_published
from pytest_skillopt.plugins.published.search_batch import edit_budget
from pytest_skillopt.search.extensions import Stages
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from types import ModuleType

    from pytest_skillopt.edits.combine import Patch
    from pytest_skillopt.edits.context import Context

budgets = st.integers(1, 20)


@given(st.sampled_from(["constant", "linear", "cosine"]), st.integers(0, 12), budgets, budgets)
def test_it_is_the_budget_of_skillrl(name: str, steps: int, one: int, other: int) -> None:
    """The same formulas as in SkillOpt; of a single step too."""
    scheduler = pytest.importorskip("skillrl.core.scheduler")
    start = max(one, other)
    end = min(one, other)
    theirs = scheduler.build_scheduler(name, max_lr=start, min_lr=end, total_steps=steps)
    for step in range(1, steps + 1):
        ours = edit_budget(name, step, steps, start=start, end=end)
        assert ours == theirs._compute_lr(step)


def test_steps_are_counted_from_one_as_in_skillopt(toy: ModuleType) -> None:
    """The first of two steps has three edits and the second two, through a whole training.

    Analysts are told the constant budget.
    """
    world = toy.make_world(tasks=16, rules=4, weak=0.0)
    model = toy.ToyOptimizer(useful=0.0)
    tasks = toy.make_tasks(world)
    settings = Settings(search="batch", epochs=2, batch_size=8, meta_skill=False)
    selected: list[int] = []

    def select(patch: Patch, context: Context) -> Patch:
        selected.append(context.budget)
        return select_published(patch, context)

    Trainer(
        Version.from_bytes(toy.SKILL),
        tasks,
        toy.ToySampler(world, tasks),
        model,
        settings,
        stages=replace(Stages.of(settings), select=select),
    ).run()
    assert selected == [3, 2]
    told = [
        re.findall(r"[Aa]t most (\d+) edits", prompt)
        for _, sample, prompt in model.asked
        if "reflect_failures" in sample
    ]
    assert set(map(tuple, told)) == {("4",)}


def test_settings_whose_budget_would_grow_are_a_usage_error(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("-o", "skillopt_published=min_edit_budget: 5", "--skillopt-train")
    result.stderr.fnmatch_lines(
        "ERROR: min_edit_budget=5 is above edit_budget=4: the budget falls*"
    )
    lower = pytester.runpytest("-oskillopt_published=edit_budget: 1")
    assert lower.ret != pytest.ExitCode.USAGE_ERROR


def test_a_whole_body_that_cannot_be_tried_edit_by_edit_is_a_usage_error(
    pytester: pytest.Pytester,
) -> None:
    mode = ("-o", "skillopt_published=update_mode: full_rewrite_minibatch")
    result = pytester.runpytest(*mode, "--skillopt-train")
    assert_refused(result, "*update_mode=full_rewrite_minibatch*search=batch*")
    result = pytester.runpytest(*mode, "--skillopt-train", "--skillopt-search=batch")
    result.stderr.no_fnmatch_line("*update_mode=*")
