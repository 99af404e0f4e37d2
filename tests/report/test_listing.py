"""The table of runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kept_runs import home, keep_run

from pytest_skillopt import cli

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

__all__ = ["home"]


def test_runs_lists_over_time(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_run(home, "20260103-000000-cc", before=0.4)
    keep_run(home, "20260101-000000-aa", before=0.5)
    assert cli.main(["show", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == [
        "20260101-000000-aa", "2026-01-01", "train", "accepted", "invoices",
        "50.0", "%", "75.0", "%", "1,200", "9,000", "$0.25",
    ]  # fmt: skip
    assert lines[2].startswith("20260103-000000-cc")


def test_a_training_is_listed_by_its_estimate(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = keep_run(home, "20260103-000000-cc") / "result.json"
    data = json.loads(result.read_text(encoding="utf-8"))
    counts = dict.fromkeys(("tasks", "fresh", "pairs"), 8)
    rates = {"before": 0.52, "after": 0.7, "low": 0.1, "high": 0.3}
    data["skills"][0]["gain"] = {**counts, **rates, "is_model": True}
    result.write_text(json.dumps(data), encoding="utf-8")
    assert cli.main(["show", "--list"]) == 0
    assert "  52.0 %  70.0 %  " in capsys.readouterr().out


def test_a_cost_without_a_role_says_so(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_run(home, "20260103-000000-cc", unpriced="optimizer")
    assert cli.main(["show", "--list"]) == 0
    assert "$0.25 without optimizer" in capsys.readouterr().out
