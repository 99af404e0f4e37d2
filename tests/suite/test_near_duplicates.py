from __future__ import annotations

import json
from dataclasses import replace
from string import ascii_lowercase

from pytest_skillopt import SkillTask
from pytest_skillopt.suite.splits import SPLITS, assign_splits


def test_nearly_the_same_task_in_several_splits_is_said() -> None:
    def prompts(texts: list[str]) -> list[str]:
        texts = [f"def test(case): ...\n{json.dumps({'case': text})}" for text in texts]
        tasks = [SkillTask(id=f"t{n}", text=text) for n, text in enumerate(texts)]
        return [n for n in assign_splits(tasks, "2:1:1")[1] if "nearly the same" in n]

    (note,) = prompts([f"Write the notes of release {n}, please!" for n in range(24)])
    assert "(val) and t" in note
    assert "group=" in note
    words = [f"{a}{b}" for a in "xyz" for b in "klmnopqr"]
    assert prompts([" ".join(word + ascii_lowercase[n] for word in words) for n in range(24)]) == []
    assert prompts([f"Greet guest {n}." for n in range(24)]) == [], "mere names"
    assert prompts([f"Greet the guest politely, as ever, in the name of {n}" for n in words]) != []


def test_pairs_of_nearly_the_same_tasks_are_kept_together_and_said_once() -> None:
    words = [f"{a}{b}" for a in "xyz" for b in "klmn"]

    def tasks(split: str = "") -> list[SkillTask]:
        texts = [" ".join(word + ascii_lowercase[n] for word in words) for n in range(18)]
        made = [(f"t{n}", text, "") for n, text in enumerate(texts)]
        made += [(f"u{n}", f"{text} 7", split) for n, text in enumerate(texts[:6])]
        return [
            SkillTask(id=name, split=split, text=f"def test(): ...\n{json.dumps([text])}")
            for name, text, split in made
        ]

    assigned, notes = assign_splits(tasks(), "2:1:1")
    splits = {task.id: task.split for task in assigned}
    assert [splits[f"t{n}"] for n in range(6)] == [splits[f"u{n}"] for n in range(6)]
    assert set(splits.values()) == set(SPLITS)
    (said,) = [note for note in notes if "nearly the same" in note]
    assert said == "nearly the same and kept in one split: 12 tasks, such as t0 and u0"
    marked = [replace(t, split="train") if t.id == "t0" else t for t in tasks("val")]
    splits = {task.id: task.split for task in assign_splits(marked, "2:1:1")[0]}
    assert (splits["t0"], splits["u0"], splits["t1"]) == ("train", "val", "val"), "marks win"
