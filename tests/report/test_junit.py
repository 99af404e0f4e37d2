"""Properties of test cases in a JUnit file."""

from __future__ import annotations

from pytest_skillopt.report.junit import properties
from pytest_skillopt.run.result import Arm, TaskRow


def test_task_properties_of_a_comparison() -> None:
    row = TaskRow(
        id="t::a",
        split="val",
        before=Arm(passed=1, n=4, score=0.25),
        after=Arm(passed=4, n=4, errors=1),
        change="fixed",
        flaky=True,
        calls=8,
        tokens=900,
        cost=0.00012,
    )
    assert dict(properties(row)) == {
        "skillopt_split": "val",
        "skillopt_pass_rate": "0.2500",
        "skillopt_passed": "1",
        "skillopt_samples": "4",
        "skillopt_score": "0.2500",
        "skillopt_pass_rate_after": "1.0000",
        "skillopt_passed_after": "4",
        "skillopt_samples_after": "4",
        "skillopt_errors_after": "1",
        "skillopt_change": "fixed",
        "skillopt_marks": "flaky, 1 error",
        "skillopt_calls": "8",
        "skillopt_tokens": "900",
        "skillopt_cost": "0.000120",
    }


def test_what_was_not_measured_has_no_property() -> None:
    row = TaskRow(id="t::a", split="", before=Arm(), skipped=True)
    assert dict(properties(row)) == {
        "skillopt_passed": "0",
        "skillopt_samples": "0",
        "skillopt_marks": "skipped",
        "skillopt_calls": "0",
        "skillopt_tokens": "0",
    }
