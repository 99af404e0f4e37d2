from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.addons import merged
from pytest_skillopt.report import runs
from pytest_skillopt.report.words import task_properties
from pytest_skillopt.run.result import Arm, Result, TaskRow

if TYPE_CHECKING:
    from pathlib import Path

MakeResult = Callable[..., Result]


def test_all_reports_are_written_and_the_result_reads_back(
    make_result: MakeResult, tmp_path: Path
) -> None:
    result = make_result(hostile=True)
    runs.write_reports(tmp_path / "run", result)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"result.json", *merged("REPORTS"), "skill.patch"}
    read = Result.load((tmp_path / "run" / "result.json").read_bytes())
    assert read == result
    for name, render in merged("REPORTS").items():
        assert (tmp_path / "run" / name).read_text(encoding="utf-8") == render(read)
    patch = (tmp_path / "run" / "skill.patch").read_bytes()
    assert patch == result.skills[0].patch.encode()


def test_files_are_for_their_owner_alone(make_result: MakeResult, tmp_path: Path) -> None:
    runs.write_reports(tmp_path, make_result())
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_an_old_patch_does_not_outlive_the_change(make_result: MakeResult, tmp_path: Path) -> None:
    runs.write_reports(tmp_path, make_result())
    runs.write_reports(tmp_path, make_result(status="rejected"))
    assert not (tmp_path / "skill.patch").exists()


def test_a_failed_write_leaves_the_old_file_and_no_scrap(
    make_result: MakeResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.write_reports(tmp_path, make_result(tasks=1))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        runs.write_reports(tmp_path, make_result(tasks=2))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


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
    assert dict(task_properties(row)) == {
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
    assert dict(task_properties(row)) == {
        "skillopt_passed": "0",
        "skillopt_samples": "0",
        "skillopt_marks": "skipped",
        "skillopt_calls": "0",
        "skillopt_tokens": "0",
    }
