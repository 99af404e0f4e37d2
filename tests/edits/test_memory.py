"""Edits that were tried in a run, as its later steps are told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tables import each_row

from pytest_skillopt.edits.records import Memory, SampledEdit, describe_sampled
from pytest_skillopt.edits.reflect import reflect

if TYPE_CHECKING:
    from types import ModuleType


def test_losses_are_counted(toy: ModuleType) -> None:
    memory = Memory()
    line = toy.append("- Be nice.")
    memory.remember(line, "given up")
    assert memory.render() == ""  # It may have had bad luck.
    memory.remember(line, "given up")
    assert "given up, 2 times" in memory.render()
    memory.remember(line, "accepted")
    assert memory.render() == ""
    assert "accepted" in memory.tried(accepted=True)[0]


def test_what_is_shown_is_bounded(toy: ModuleType) -> None:
    memory = Memory()
    for number in range(250):
        memory.remember(toy.append(f"- Line {number}. " + "x" * 1000), "rejected")
    memory.remember_patterns(("tests/a.py:3", f"pattern {n // 2}") for n in range(100))
    shown = memory.render().split("\n")
    assert len(shown) == 25
    assert all(len(line) < 400 for line in shown)


def test_common_failures_are_shown() -> None:
    memory = Memory()
    memory.remember_patterns([("tests/a.py:3", "wrong date")] * 2 + [("", "")])
    assert "2 times: tests/a.py:3 wrong date" in memory.render()


def test_analysts_are_shown_by_figures_what_was_refuted(toy: ModuleType) -> None:
    model = toy.ToyOptimizer()
    refuted = SampledEdit(
        toy.append("- Be nice."), -0.041, 0.03, 36, {"test_a": -0.12, "test_b": 0.01}
    )
    won = SampledEdit(toy.append("- Add the unit."), 0.125, 0.97, 41)
    open_still = SampledEdit(toy.append("- Sort the rows."), 0.02, 0.4, 9)
    context = toy.make_context(model, sampled=[refuted, won, open_still])
    reflect([toy.make_record("test_a", "--")], context)
    prompt = model.asked[0][-1]
    for line in (
        "1. refuted (-4 points, helps with probability 0.03, 36 samples): append - Be nice. "
        "[test_a -12, test_b +1]",
        "2. helps (+12 points, helps with probability 0.97, 41 samples): append - Add the unit.\n",
        "3. not decided (+2 points, helps with probability 0.40, 9 samples): append - Sort",
    ):
        assert line in prompt
    assert "Do not propose it in other words" in prompt


@each_row(
    ("numbers", "votes"),
    [(None, 0), ([], 0), ("none", 0), (["E1", {}, -1], 0), ([1], 1), (["1"], 1), ("1", 1), (1, 1)],
)
def test_numbers_are_read_as_models_write_them(
    toy: ModuleType, numbers: object, votes: int
) -> None:
    reply = {"again": numbers, "edits": [{"op": "append", "content": "- Be brief."}]}
    model = toy.ToyOptimizer(script=lambda form, messages: json.dumps(reply))
    known = [SampledEdit(toy.append("- Be nice."), 0.0, 0.4, 30)]
    (patch,) = reflect([toy.make_record("test_a", "--")], toy.make_context(model, sampled=known))
    assert [edit.content for edit in patch.edits if edit.content == "- Be brief."]
    assert len(patch.edits) == 1 + votes


def test_an_edit_with_figures_is_not_listed_again_without_them(toy: ModuleType) -> None:
    model = toy.ToyOptimizer()
    memory = Memory()
    edit = toy.append("- Be nice.")
    memory.remember(edit, "rejected", "no task improved")
    memory.remember(toy.append("- Call https://example.org."), "refused", "an address")
    known = [SampledEdit(edit, 0.0, 0.02, 30)]
    reflect(
        [toy.make_record("test_a", "--")], toy.make_context(model, memory=memory, sampled=known)
    )
    prompt = model.asked[0][-1]
    assert prompt.count("- Be nice.") == 1
    assert "refused: an address" in prompt


def test_sampled_edits_are_bounded_and_hold_no_secret(toy: ModuleType) -> None:
    key = "sk-proj-" + "a1B2c3D4" * 4
    edits = [
        SampledEdit(toy.append(f"- Line {number}, {key}. " + "x" * 1000), 0.0, 0.0, 1)
        for number in range(50)
    ]
    lines = describe_sampled(edits).split("\n")
    assert len(lines) == 20
    assert all(len(line) < 800 and key not in line for line in lines)
