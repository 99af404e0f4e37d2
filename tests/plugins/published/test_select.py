"""Rank and clip."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_skillopt.edits.combine import Patch
from pytest_skillopt.plugins.published.merging import select_published as select

if TYPE_CHECKING:
    from types import ModuleType

NAMES = ["alpha", "beta", "gamma", "delta", "epsilon"]


def patch_of(toy: ModuleType, count: int = 5) -> Patch:
    return Patch(tuple(toy.append(name, support=i + 1) for i, name in enumerate(NAMES[:count])))


def chosen(patch: Patch) -> list[str]:
    return [p.content for p in patch.edits]


def test_an_unreadable_ranking_falls_back_to_support(toy: ModuleType) -> None:
    model = toy.ToyOptimizer(script=lambda form, messages: "?")
    assert chosen(select(patch_of(toy), toy.make_context(model, budget=2))) == ["epsilon", "delta"]


def test_the_optimizer_may_say_none(toy: ModuleType) -> None:
    model = toy.ToyOptimizer(script=lambda form, messages: '{"reasoning": "", "count": 0}')
    context = toy.make_context(model, budget=4, autonomous_budget=True)
    assert select(patch_of(toy), context).edits == ()
    assert model.forms() == ["EditCount"]


def test_an_unreadable_count_is_the_schedules(toy: ModuleType) -> None:
    model = toy.ToyOptimizer(script=lambda form, messages: "?" if form == "EditCount" else None)
    context = toy.make_context(model, budget=3, autonomous_budget=True)
    assert len(select(patch_of(toy), context).edits) == 3


def test_reminders_do_not_use_up_the_budget(toy: ModuleType) -> None:
    reminder = toy.append("remember", origin="appendix")
    patch = Patch((*patch_of(toy, 2).edits, reminder))
    assert len(select(patch, toy.make_context(budget=2)).edits) == 3


@settings(max_examples=30)
@given(
    st.integers(1, 6),
    st.integers(0, 8),
    st.lists(st.integers(-3, 12), max_size=12),
)
def test_no_ranking_gets_past_the_budget(budget: int, count: int, indices: list[int]) -> None:
    toy = sys.modules["toy_world"]
    reply = json.dumps({"reasoning": "", "selected_indices": indices})
    patch = Patch(tuple(toy.append(f"line number {i}") for i in range(count)))
    model = toy.ToyOptimizer(script=lambda form, messages: reply)
    kept = chosen(select(patch, toy.make_context(model, budget=budget)))
    valid = [i for i in dict.fromkeys(indices) if 0 <= i < count]
    if count <= budget:
        assert kept == chosen(patch)
        assert model.asked == []
    elif valid:
        assert kept == [f"line number {i}" for i in valid[:budget]]
    else:
        assert len(kept) == budget
