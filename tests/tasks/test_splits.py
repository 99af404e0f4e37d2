from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.tasks.splits import BOTH, SPLITS, SplitError, assign_splits, parse_ratio
from pytest_skillopt.tasks.task import SkillTask


def task(name: str, *, split: str = "", group: str = "", source: str = "") -> SkillTask:
    return SkillTask(
        id=name, source=source or name, skill="SKILL.md", group=group or name, split=split
    )


def suite(count: int, prefix: str = "test_a.py::test_") -> list[SkillTask]:
    return [task(f"{prefix}{i}") for i in range(count)]


def by_id(tasks: list[SkillTask]) -> dict[str, str]:
    return {t.id: t.split for t in tasks}


@given(st.integers(21, 120), st.text("abc", max_size=3))
def test_every_split_is_near_its_share(count: int, prefix: str) -> None:
    tasks, _ = assign_splits(suite(count, prefix), "2:1:1")
    sizes = {name: sum(t.split == name for t in tasks) for name in SPLITS}
    assert sum(sizes.values()) == count
    for name, share in zip(SPLITS, (0.5, 0.25, 0.25), strict=True):
        assert abs(sizes[name] - share * count) <= max(1.5, 0.4 * share * count), sizes


def test_adding_a_task_moves_no_other_in_a_large_suite() -> None:
    before, notes = assign_splits(suite(400), "2:1:1")
    after, _ = assign_splits([*suite(400), task("test_b.py::test_new")], "2:1:1")
    assert notes == []
    assert {k: v for k, v in by_id(after).items() if k in by_id(before)} == by_id(before)


def test_moved_groups_are_named() -> None:
    for prefix in "abcdefghij":
        tasks, notes = assign_splits(suite(24, prefix), "2:1:1")
        assert {t.split for t in tasks} == set(SPLITS)
        if notes:
            assert "moved" in notes[0]
            assert prefix in notes[0]
            return
    pytest.fail("no suite of 24 needed a move")


@given(st.permutations(range(24)))
def test_the_order_of_the_tasks_does_not_matter(order: list[int]) -> None:
    tasks = suite(24)
    first, _ = assign_splits(tasks, "2:1:1")
    second, _ = assign_splits([tasks[i] for i in order], "2:1:1")
    assert by_id(first) == by_id(second)


def test_a_group_stays_together() -> None:
    tasks = [*suite(20), task("x", group="g"), task("y", group="g"), task("z", group="g")]
    splits = by_id(assign_splits(tasks, "2:1:1")[0])
    assert splits["x"] == splits["y"] == splits["z"]


def test_the_same_content_stays_together() -> None:
    tasks = [*suite(20), task("x", source="same"), task("y", source="same")]
    splits = by_id(assign_splits(tasks, "2:1:1")[0])
    assert splits["x"] == splits["y"]


@given(st.integers(11, 20), st.integers(10, 20), st.integers(0, 9), st.text("abc", max_size=3))
def test_requests_of_either_kind_and_of_each_skill_are_in_every_split(
    should: int, should_not: int, others: int, prefix: str
) -> None:
    kinds = {True: should, False: should_not, None: others}
    tasks = [
        SkillTask(id=f"{prefix}{skill}-{kind}-{i}", skill=skill, trigger=kind)
        for skill in ("a", "b")
        for kind, count in kinds.items()
        for i in range(count)
    ]
    assigned, _ = assign_splits(tasks, "2:1:1")
    found = {(task.skill, task.trigger, task.split) for task in assigned}
    assert found >= {(s, kind, n) for s in "ab" for kind in (True, False) for n in SPLITS}


def test_another_seed_assigns_the_splits_anew() -> None:
    found = [by_id(assign_splits(suite(40), "2:1:1", seed)[0]) for seed in (0, 0, 1, 2)]
    assert found[0] == found[1]
    assert len({tuple(sorted(each.items())) for each in found}) == 3
    for each in found:
        assert Counter(each.values())["train"] == pytest.approx(20, abs=7)


@each_row("count", [1, 7, 20])
def test_a_small_suite_without_marks_is_not_split(count: int) -> None:
    tasks, notes = assign_splits(suite(count), "2:1:1")
    assert {t.split for t in tasks} == {BOTH}
    (note,) = notes
    assert f"SKILL.md: its tasks are not split, since parts of so few ({count}) tell" in note
    assert "mark tasks with split= to change that" in note


def test_each_skill_is_split_by_the_size_of_its_own_suite() -> None:
    small = [replace(t, skill="small/SKILL.md") for t in suite(20, "small")]
    tasks, notes = assign_splits([*suite(21), *small], "2:1:1")
    assert {t.split for t in tasks if t.skill == "SKILL.md"} == set(SPLITS)
    assert {t.split for t in tasks if t.skill != "SKILL.md"} == {BOTH}
    assert [note for note in notes if "not split" in note] == [
        note for note in notes if note.startswith("small/SKILL.md")
    ]


def test_a_small_suite_with_marks_is_split() -> None:
    tasks, _ = assign_splits(
        [task("a", split="train"), task("b", split="val"), task("c", split="train")], "2:1:1"
    )
    assert by_id(tasks) == {"a": "train", "b": "val", "c": "train"}


@each_row(
    ("tasks", "message"),
    [
        ([task("a", split="dev"), *suite(9)], "must be train, val or test"),
        (
            [task("a", split="train", source="s"), task("b", split="val", source="s")],
            "same content",
        ),
        ([task("a", split="train", group="g"), task("b", split="val", group="g")], "one group"),
        ([task("a", split="train"), task("b", split="train")], "val split is empty"),
        ([task("a", split="val"), task("b", split="val")], "train split is empty"),
    ],
)
def test_what_cannot_be_split_is_refused(tasks: list[SkillTask], message: str) -> None:
    with pytest.raises(SplitError, match=message):
        assign_splits(tasks, "2:1:1")


@each_row("ratio", ["", "1", "1:1", "0:1:1", "1:0:1", "a:b:c", "1:1:inf", "1:1:-1"])
def test_a_ratio_that_is_none_is_refused(ratio: str) -> None:
    with pytest.raises(SplitError, match="2:1:1"):
        parse_ratio(ratio)


def test_a_ratio_without_test_tasks() -> None:
    tasks, _ = assign_splits(suite(30), "1:1:0")
    assert {t.split for t in tasks} == {"train", "val"}
