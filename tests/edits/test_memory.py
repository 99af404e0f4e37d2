"""What was tried, over steps and runs."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pytest_skillopt.edits.memory import Memory

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


def test_it_is_kept_for_later_runs(toy: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "memory.json"
    first = Memory(path, run="one")
    line = toy.append("- Be nice.", "a", "b")
    first.remember(line, "rejected", "no task improved", {"a": -0.5, "b": 0.5})
    first.advice = "Short rules work."
    first.save()

    second = Memory(path, run="two")
    assert "rejected: no task improved (1 tasks better, 1 worse, of 2)" in second.render()
    assert second.advice == "Short rules work."
    known = second.earlier(line)
    assert known is not None
    assert known.effects == {"a": -0.5, "b": 0.5}


def test_the_same_run_again_sees_what_it_saw_at_first(toy: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    for run, text in (("one", "- Alpha."), ("two", "- Beta.")):
        memory = Memory(path, run=run)
        memory.remember(toy.append(text), "lost")
        memory.save()
    again = Memory(path, run="two")
    assert "Alpha" in again.render()
    assert "Beta" not in again.render()
    assert Memory(path, run="one").render() == ""


def test_losses_are_counted(toy: ModuleType) -> None:
    memory, line = Memory(), toy.append("- Be nice.")
    memory.remember(line, "lost")
    assert memory.render() == ""  # It may have had bad luck.
    memory.remember(line, "lost")
    assert "lost, 2 times" in memory.render()
    memory.remember(line, "accepted")
    assert memory.render() == ""
    assert "accepted" in memory.render(accepted=True)


def test_it_is_bounded(toy: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    for run in range(25):
        memory = Memory(path, run=str(run))
        for number in range(250):
            memory.remember(toy.append(f"- Line {number}. " + "x" * 1000), "lost")
        memory.remember_patterns(("tests/a.py:3", f"pattern {n}") for n in range(100))
        memory.save()
    document = json.loads(path.read_text())
    assert len(document["runs"]) == 20
    assert all(len(run["tried"]) == 200 for run in document["runs"])
    assert path.stat().st_size < 20 * 200 * 600 * 4
    assert memory.render(20).count("\n") < 30


def test_common_failures_are_shown() -> None:
    memory = Memory()
    memory.remember_patterns([("tests/a.py:3", "wrong date")] * 2 + [("", "")])
    assert "- seen 2 times: tests/a.py:3 wrong date" in memory.render()


def test_common_failures_are_kept_and_shown_as_far_as_feedback_allows(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    for run in ("one", "two"):
        memory = Memory(path, run=run)
        memory.remember_patterns([("tests/a.py:3", "wrong date"), ("tests/b.py:4", "wrong date")])
        memory.save()
    assert "2 times: tests/a.py:3 wrong date" in Memory(path, run="three").render()
    by_message = Memory(path, run="three", feedback="message").render()
    assert by_message == "- seen 4 times: wrong date"
    assert Memory(path, run="three", feedback="score").render() == ""


def test_a_later_run_learns_from_one_that_ended_without_fruit(
    toy: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "memory.json"
    first = Memory(path, run="same", name="monday")
    first.remember(toy.append("- Alpha."), "lost")
    first.save(fruitless=True)
    assert Memory(path, run="same", name="monday").render() == "", "a resumption sees no more"
    second = Memory(path, run="same", name="tuesday")
    assert "Alpha" in second.render()
    second.remember(toy.append("- Beta."), "accepted")
    second.save()
    third = Memory(path, run="same", name="wednesday")
    assert third.render(accepted=True) == second.render(), "the accepted one again"


def test_a_file_that_is_no_memory_is_said_and_replaced(toy: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    broken = '{"runs": [{"run": "a", "advice": "", "tried": [{"x": 1}]}]}'
    for text in ("{", "[]", '{"runs": [{"run": 1}]}', broken):
        path.write_text(text)
        memory = Memory(path, run="one")
        assert "not a memory of earlier runs" in memory.notes[0]
    memory.remember(toy.append("- Be nice."), "lost")
    memory.save()
    assert Memory(path, run="two").notes == []


def test_what_another_version_wrote_is_left_out_with_a_notice(
    toy: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "memory.json"
    first = Memory(path, run="one")
    first.remember(toy.append("- Be nice."), "lost", "it broke tests/test_val.py::test_secret")
    first.save()
    older = json.loads(path.read_text()) | {"schema": "skillopt-memory/1"}
    path.write_text(json.dumps(older))
    memory = Memory(path, run="two")
    assert "left out, it is in the form of another version (skillopt-memory/1" in memory.notes[0]
    assert memory.render() == ""
    assert memory.earlier(toy.append("- Be nice.")) is None
    memory.save()
    assert "test_val" not in path.read_text()
    assert Memory(path, run="three").notes == []


def test_trainings_that_end_at_once_keep_what_each_of_them_tried(
    toy: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "memory.json"
    memories = [Memory(path, run=f"run {n}") for n in range(12)]
    for number, memory in enumerate(memories):
        memory.remember(toy.append(f"- Line {number}."), "lost")
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(Memory.save, memories))
    runs = json.loads(path.read_text())["runs"]
    assert sorted(section["run"] for section in runs) == sorted(f"run {n}" for n in range(12))
    assert not list(tmp_path.glob("*.tmp"))


def test_switched_off_it_remembers_nothing(toy: ModuleType, tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory.json", run="one", enabled=False)
    memory.remember(toy.append("- Be nice."), "lost")
    memory.remember_patterns([("a", "b")] * 2)
    memory.save()
    assert memory.render() == ""
    assert list(tmp_path.iterdir()) == []
