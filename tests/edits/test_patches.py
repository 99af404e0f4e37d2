"""Proposals that say the same become one without a call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.edits.combine import Patch, aggregate, by_support, deduplicate, say_the_same
from pytest_skillopt.skill.edits import Edit

if TYPE_CHECKING:
    from types import ModuleType


@each_row(
    ("one", "other", "same"),
    [
        ("Write every date as year-month-day.", "Write each date as year-month-day.", True),
        ("Round amounts to 2 places.", "Round amounts to 3 places.", False),
        ("Write dates as ISO.", "Answer with JSON only.", False),
    ],
)
def test_near_duplicates(toy: ModuleType, one: str, other: str, same: bool) -> None:
    assert say_the_same(toy.append(one), toy.append(other)) is same


def test_what_is_replaced_must_be_the_same() -> None:
    one = Edit("replace", "first sentence", "new")
    other = Edit("replace", "second sentence", "new")
    assert not say_the_same(one, other)
    added = Edit("append", "", "new")
    assert say_the_same(added, Edit("insert_after", "x", "new"))


@given(st.lists(st.sampled_from(["alpha one", "beta two", "gamma three", "Alpha  one!"])))
def test_support_is_conserved_and_a_second_pass_changes_nothing(lines: list[str]) -> None:
    proposals = [Edit("append", "", line) for line in lines]
    once = deduplicate(proposals)
    assert sum(p.support for p in once) == len(lines)
    assert deduplicate(once) == once


@given(
    st.permutations([(support, origin) for support in (1, 2) for origin in ("failure", "success")])
)
def test_support_ranks_failures_first(order: list[tuple[int, str]]) -> None:
    proposals = [
        Edit("append", "", "x", support=support, origin=origin)  # type: ignore[arg-type]
        for support, origin in order
    ]
    ranked = [(p.origin, p.support) for p in by_support(proposals)]
    assert ranked == [("failure", 2), ("failure", 1), ("success", 2), ("success", 1)]


def test_patches_become_one_without_a_call_failures_first(toy: ModuleType) -> None:
    model = toy.ToyOptimizer()
    rule, same, other = (
        toy.append(text, task) for text, task in (("Sort.", "a"), ("sort", "b"), ("Sum.", "c"))
    )
    kept = replace(other, origin="success")
    patches = [Patch((kept, same), "one", note="noted"), Patch((rule,), "two")]
    merged = aggregate(patches, toy.make_context(model))
    assert [(e.content, e.tasks, e.support) for e in merged.edits] == [
        ("sort", ("b", "a"), 2),
        ("Sum.", ("c",), 1),
    ]
    assert (merged.reasoning, merged.note, model.asked) == ("one two", "noted", [])
