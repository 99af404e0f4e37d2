"""Several skills of one suite, in the light of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.model.limits import Caps
from pytest_skillopt.run.result import Arm, TaskRow
from pytest_skillopt.search.outcome import TrainOutcome, check_together
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.document import Document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.run.result import Status

BEFORE, AFTER = Document.from_bytes(b"before\n"), Document.from_bytes(b"after\n")


def outcome(
    skill: str, passes: Sequence[tuple[int, int]], status: Status = "accepted"
) -> TrainOutcome:
    """``passes``: of three samples, before and after, by task."""
    rows = tuple(
        TaskRow(id=f"{skill}{n}", split="val", before=Arm(passed=b, n=3), after=Arm(passed=a, n=3))
        for n, (b, a) in enumerate(passes)
    )
    after = AFTER if status == "accepted" else BEFORE
    return TrainOutcome(skill, BEFORE, after, status, "why", AFTER, tasks=rows)


def statuses(*outcomes: TrainOutcome) -> list[tuple[str, bool]]:
    checked, _ = check_together(outcomes)
    return [(o.status, o.after == AFTER) for o in checked]


def test_what_improves_everything_is_kept() -> None:
    both = outcome("a", [(0, 3), (3, 3)]), outcome("b", [(1, 2)])
    assert statuses(*both) == [("accepted", True)] * 2
    assert "with a and b the pass rate of all 3 tasks" in check_together(both)[1]
    assert "+44.4 points" in check_together(both)[1]


def test_a_skill_that_is_worse_in_its_counts_is_taken_back() -> None:
    both = outcome("a", [(0, 3)]), outcome("b", [(2, 1), (3, 3)])
    assert statuses(*both) == [("accepted", True), ("rejected", False)]


def test_nothing_is_kept_where_the_whole_suite_does_not_rise() -> None:
    both = outcome("a", [(2, 2)]), outcome("b", [(2, 1), (1, 2)])
    assert statuses(*both) == [("rejected", False)] * 2


def test_skills_that_were_only_shortened_need_not_rise() -> None:
    same, lower = outcome("a", [(3, 3), (3, 3)]), outcome("b", [(3, 2), *[(3, 3)] * 9])
    checked, said = check_together([same, lower], margin=0.05)
    assert [(o.status, o.after == AFTER) for o in checked] == [("accepted", True)] * 2
    assert "-2.8 points" in said
    assert statuses(same, lower) == [("rejected", False)] * 2
    broken = outcome("b", [(3, 0), *[(3, 3)] * 9])
    checked, _ = check_together([same, broken], margin=0.05)
    assert [o.status for o in checked] == ["accepted", "rejected"]


def test_one_accepted_skill_stands_on_its_own_comparison() -> None:
    both = outcome("a", [(2, 2)]), outcome("b", [(3, 3)], "rejected")
    assert statuses(*both) == [("accepted", True), ("rejected", False)]


def test_an_interrupted_run_keeps_nothing() -> None:
    both = outcome("a", [(0, 3)]), outcome("b", [], "interrupted")
    assert statuses(*both) == [("interrupted", False)] * 2


def test_what_the_first_skill_leaves_goes_to_the_second() -> None:
    caps = Caps(rollouts=100, tokens=7, cost=3.0)
    first = caps.share(Caps(), 2)
    assert first == Caps(rollouts=50, tokens=3, cost=1.5)
    assert caps.share(Caps(rollouts=20, calls=9, cost=1.0), 1) == Caps(80, 0, 7, 2.0)
    assert first.put_into(Settings(max_time=9.0)).max_rollouts == 50


@pytest.mark.parametrize("parts", [1, 3])
def test_a_cap_that_is_used_up_is_not_turned_off(parts: int) -> None:
    caps = Caps(10, 10, 10, 1.0, 1.0)
    left = caps.share(Caps(20, 20, 20, 2.0, 2.0), parts)
    assert (left.rollouts, left.calls, left.tokens) == (1, 1, 1)
    assert 0 < left.cost < 1e-6
    assert 0 < left.seconds < 1e-6
