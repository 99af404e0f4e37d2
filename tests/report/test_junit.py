"""Properties of test cases in a JUnit file."""

from __future__ import annotations

from pytest_skillopt.report.junit import properties
from pytest_skillopt.run.result import Arm, TaskRow


def test_a_task_has_the_pass_rates_that_were_measured() -> None:
    before = Arm(passed=1, n=4)
    after = Arm(passed=4, n=4, errors=1)
    row = TaskRow(id="t::a", split="val", before=before, after=after, none=Arm(errors=2))
    assert properties(row) == [
        ("skillopt_pass_rate", "0.2500"),
        ("skillopt_pass_rate_after", "1.0000"),
    ]
    assert properties(row.model_copy(update={"none": Arm(passed=1, n=3)}))[2:] == [
        ("skillopt_pass_rate_none", "0.3333")
    ]
