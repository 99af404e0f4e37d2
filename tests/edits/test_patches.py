"""Proposals that say the same become one: by their text, or by one call of the optimizer."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from string import ascii_lowercase
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.edits.aggregate import aggregate
from pytest_skillopt.edits.combine import Patch, by_support, deduplicate, say_the_same
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


def test_long_edits_are_compared_by_words(toy: ModuleType) -> None:
    """Letter by letter these take minutes."""
    words = ["".join(letters) for letters in itertools.product(ascii_lowercase, repeat=3)]
    edit = toy.append(" ".join(words))
    assert say_the_same(edit, toy.append(f"First of all: {edit.content}"))
    assert not say_the_same(edit, toy.append(" ".join(words[::-1])))


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


def test_edits_with_one_text_become_one_without_a_call(toy: ModuleType) -> None:
    model = toy.ToyOptimizer()
    rule = toy.append("Sort.", "a")
    same = replace(toy.append("sort", "b"), origin="success")
    patches = [Patch((same,), "one", note="noted"), Patch((rule,), "two")]
    merged = aggregate(patches, toy.make_context(model))
    assert [(e.content, e.tasks, e.support) for e in merged.edits] == [("Sort.", ("a", "b"), 2)]
    assert (merged.reasoning, merged.note, model.asked) == ("one two", "noted", [])


@each_row(
    ("answer", "united"),
    [
        ({"groups": [[1, 2]]}, {"- Sort rows.": ("a",), "- Sum up.": ("b",)}),
        ({"groups": [[3, 1]]}, {"- Order the rows.": ("a",), "- Sort rows.": ("b",)}),
        ({"groups": [[2, 3, 3], [2, 1]]}, {"- Order the rows.": ("a", "b")}),
        ({"groups": [[0, 3], [9], []]}, {"- Order the rows.": ("a",), "- Sum up.": ("b",)}),
        ({"groups": None}, {"- Order the rows.": ("a",), "- Sum up.": ("b",)}),
        ({}, {"- Order the rows.": ("a",), "- Sum up.": ("b",)}),
    ],
)
def test_one_call_names_the_edits_that_say_the_same(
    toy: ModuleType, answer: dict[str, object], united: dict[str, tuple[str, ...]]
) -> None:
    model = toy.ToyOptimizer(script=lambda form, messages: json.dumps(answer))
    known = [toy.append("- Sort rows.", "z")]
    context = toy.make_context(model, known=known)
    patches = [
        Patch((toy.append("- Order the rows.", "a"),)),
        Patch((toy.append("- Sum up.", "b"),)),
    ]
    merged = aggregate(patches, context)
    assert {edit.content: edit.tasks for edit in merged.edits} == united
    assert {form for form, *_ in model.asked} == {"Groups"}
    prompt = model.asked[0][-1]
    for line in ("1. SKILL.md: append - Sort rows.", "3. SKILL.md: append - Sum up."):
        assert line in prompt


def test_what_stands_elsewhere_keeps_its_words_and_votes_go_to_the_first_known_edit(
    toy: ModuleType,
) -> None:
    script = {"groups": [[1, 2, 3], [4, 5]]}
    model = toy.ToyOptimizer(script=lambda form, messages: json.dumps(script))
    known = [toy.append("- Sort rows."), toy.append("- Order the rows.")]
    named = replace(known[1], tasks=("a",), support=1)
    described = replace(toy.append("- Arrange all rows.", "b"), field="description")
    others = [toy.append("- Sum up.", "c"), toy.append("- Add all figures.", "d")]
    patches = [Patch((named, described, *others))]
    merged = aggregate(patches, toy.make_context(model, known=known))
    assert {edit.content: edit.tasks for edit in merged.edits} == {
        "- Sort rows.": ("a",),
        "- Arrange all rows.": ("b",),
        "- Sum up.": ("c", "d"),
    }


def test_known_edits_are_compared_only_with_new_ones(toy: ModuleType) -> None:
    model = toy.ToyOptimizer()
    known = [toy.append("- Sort rows."), toy.append("- Sum up.")]
    merged = aggregate(
        [Patch((toy.append("- sort rows", "a"),))], toy.make_context(model, known=known)
    )
    assert [edit.tasks for edit in merged.edits] == [("a",)]
    assert model.asked == []


def test_the_question_is_bounded_and_holds_no_secret(toy: ModuleType) -> None:
    key = "sk-proj-" + "a1B2c3D4" * 4
    edits = [toy.append(f"- {toy.rule(number)} {key} " + "x" * 2000) for number in range(90)]
    model = toy.ToyOptimizer()
    aggregate([Patch(tuple(edits[:45]))], toy.make_context(model, known=edits[45:]))
    (asked,) = model.asked
    lines = re.findall(r"^\d+\. SKILL\.md: .*$", asked[-1], re.MULTILINE)
    assert len(lines) == 60
    assert all(len(line) < 700 and key not in line for line in lines)
