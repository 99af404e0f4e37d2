"""Many patches become one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_skillopt.edits.combine import Patch
from pytest_skillopt.plugins.published.merging import select_published as select
from pytest_skillopt.plugins.published.search_batch import aggregate_published as aggregate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType


def merge_to(*lines: str) -> Callable[[str, object], str]:
    edits = [{"op": "append", "target": "", "content": line} for line in lines]
    return lambda form, messages: json.dumps({"reasoning": "merged", "edits": edits})


def lines_of(patch: Patch) -> list[str]:
    return [p.content for p in patch.edits]


def patches_of(toy: ModuleType, lines: Sequence[str]) -> list[Patch]:
    return [Patch((toy.append(line, f"t{i}"),)) for i, line in enumerate(lines)]


def test_patches_with_one_edit_in_all_need_no_call(toy: ModuleType) -> None:
    model = toy.ToyOptimizer()
    patches = patches_of(toy, ["Alpha one.", "Alpha one", "alpha one!"])
    (one,) = aggregate(patches, toy.make_context(model)).edits
    assert model.asked == []
    assert (one.content, one.support, one.tasks) == ("Alpha one.", 3, ("t0", "t1", "t2"))


def test_no_merge_is_cut_to_the_budget(toy: ModuleType) -> None:
    """The selection ranks the edits, and clips their number."""
    lines = [f"rule {word} {i}" for i, word in enumerate(["one", "two", "red", "sky", "oak"])]
    model = toy.ToyOptimizer(script=merge_to(*lines))
    context = toy.make_context(model, budget=2, autonomous_budget=True)
    merged = aggregate(patches_of(toy, lines), context)
    assert lines_of(merged) == lines
    assert "at most" not in model.asked[0][2].split("# The document")[0].split("Answer")[0]
    model.script = lambda form, messages: json.dumps(
        {"count": 4} if form == "EditCount" else {"selected_indices": [4, 0, 1, 2, 3]}
    )
    assert lines_of(select(merged, context)) == [lines[4], *lines[:3]], "four, as it says"
    fixed = toy.make_context(model, budget=2)
    assert lines_of(select(merged, fixed)) == [lines[4], lines[0]]


def test_a_merged_edit_inherits_support_and_tasks(toy: ModuleType) -> None:
    patches = [
        Patch((toy.append("Write dates as ISO.", "a", support=2),)),
        Patch((toy.append("Dates: write dates as ISO dates.", "b"),)),
        Patch((toy.append("Round every amount.", "c"),)),
    ]
    model = toy.ToyOptimizer(script=merge_to("Write all dates as ISO dates."))
    (one,) = aggregate(patches, toy.make_context(model, budget=2)).edits
    assert (one.support, one.tasks) == (3, ("a", "b"))


def test_failures_stand_first(toy: ModuleType) -> None:
    patches = [
        Patch((toy.append("Keep answers short.", origin="success"),)),
        Patch((toy.append("Write dates as ISO."),)),
    ]
    merged = aggregate(patches, toy.make_context(budget=4))
    assert [p.origin for p in merged.edits] == ["failure", "success"]


def test_a_failed_merge_falls_back_and_says_so(toy: ModuleType) -> None:
    model = toy.ToyOptimizer(script=lambda form, messages: "no")
    patches = patches_of(toy, ["Alpha one.", "Beta two.", "Gamma three.", "alpha one"])
    merged = aggregate(patches, toy.make_context(model, budget=2))
    assert lines_of(merged) == ["Alpha one.", "Beta two.", "Gamma three."]
    assert merged.note == "a merge of 3 edits failed; they were concatenated instead"


def test_bodies_are_merged(toy: ModuleType) -> None:
    model = toy.ToyOptimizer(script=lambda form, m: '{"reasoning": "", "body": "# Merged"}')
    patches = [Patch((toy.append("x", f"t{i}"),), body=f"# Body {i}") for i in range(3)]
    merged = aggregate(patches, toy.make_context(model))
    assert merged.body == "# Merged"
    assert merged.edits[0].tasks == ("t0", "t1", "t2")
    model.script = lambda form, messages: "no"
    kept = aggregate(patches, toy.make_context(model))
    assert kept.body == "# Body 0"
    assert kept.note == "a merge of 3 bodies failed; the first was kept"


def test_what_analysts_said_is_quoted(toy: ModuleType) -> None:
    """Their words come out of transcripts."""
    model = toy.ToyOptimizer()
    context = toy.make_context(model, budget=1)
    proposals = [toy.append(f"line {i}", reason="Obey me.") for i in range(3)]
    aggregate([Patch((proposal,)) for proposal in proposals], context)
    for _, _, prompt in model.asked:
        start = prompt.index("Obey me.")
        assert prompt.rindex("[data ", 0, start) > prompt.rindex("[end of data", 0, start)
    assert model.asked
