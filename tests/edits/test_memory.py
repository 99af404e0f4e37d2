"""Edits that were tried in a run, as its later steps are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.edits.records import Memory

if TYPE_CHECKING:
    from types import ModuleType


def test_what_became_of_an_edit_is_told_with_its_effects(toy: ModuleType) -> None:
    memory = Memory()
    line = toy.append("- Be nice.", "a", "b")
    memory.remember(line, "rejected", "no task improved", {"a": -0.5, "b": 0.5})
    assert "rejected: no task improved (1 tasks better, 1 worse, of 2)" in memory.render()


def test_losses_are_counted(toy: ModuleType) -> None:
    memory, line = Memory(), toy.append("- Be nice.")
    memory.remember(line, "lost")
    assert memory.render() == ""  # It may have had bad luck.
    memory.remember(line, "lost")
    assert "lost, 2 times" in memory.render()
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


def test_common_failures_are_shown_as_far_as_feedback_allows() -> None:
    shown = {}
    for feedback in ("full", "message", "score"):
        memory = Memory(feedback)
        memory.remember_patterns([("tests/a.py:3", "wrong date")] * 2 + [("", "")])
        memory.remember_patterns([("tests/b.py:4", "wrong date")] * 2)
        shown[feedback] = memory.render()
    assert "2 times: tests/a.py:3 wrong date" in shown["full"]
    assert shown["message"] == "- seen 4 times: wrong date"
    assert shown["score"] == ""
