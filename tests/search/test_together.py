"""Several skills of one suite, in the light of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.run.result import Arm, TaskRow
from pytest_skillopt.search.outcome import TrainOutcome, check_together
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.run.result import Status

BEFORE, AFTER = Version.from_bytes(b"before\n"), Version.from_bytes(b"after\n")


def outcome(
    skill: str, passes: Sequence[tuple[int, int]], status: Status = "accepted"
) -> TrainOutcome:
    """``passes``: of three samples, before and after, by task."""
    rows = [
        TaskRow(id=f"{skill}{n}", split="val", before=Arm(passed=b, n=3), after=Arm(passed=a, n=3))
        for n, (b, a) in enumerate(passes)
    ]
    return TrainOutcome(
        skill=skill,
        before=BEFORE,
        after=AFTER if status == "accepted" else BEFORE,
        proposal=AFTER,
        status=status,
        reason="why",
        tasks=rows,
    )


def statuses(*outcomes: TrainOutcome) -> list[tuple[str, bool]]:
    checked, _ = check_together(outcomes)
    return [(o.status, o.after == AFTER) for o in checked]


def test_a_skill_that_is_worse_in_its_counts_is_taken_back() -> None:
    both = outcome("a", [(0, 3)]), outcome("b", [(2, 1), (3, 3)])
    assert statuses(*both) == [("accepted", True), ("rejected", False)]


def test_nothing_is_kept_where_the_whole_suite_does_not_rise() -> None:
    both = outcome("a", [(2, 2)]), outcome("b", [(2, 1), (1, 2)])
    assert statuses(*both) == [("rejected", False)] * 2


def test_skills_that_were_only_shortened_need_not_rise() -> None:
    same = outcome("a", [(3, 3), (3, 3)])
    lower = outcome("b", [(3, 2), *[(3, 3)] * 9])
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
