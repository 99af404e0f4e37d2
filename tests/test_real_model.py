"""The worlds that were recorded from a real model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
DATA = json.loads((BENCHMARKS / "data" / "real_model.json").read_text())


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=BENCHMARKS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_was_measured_is_replayed() -> None:
    said = run("learning.py", "--worlds", "tickets,forms", "--caps", "60", "--seeds", "1")
    assert [line[:9] for line in said.splitlines()[2:4]] == ["| tickets", "| forms |"]


def test_the_computed_rates_agree_with_samples() -> None:
    """No task of a set that was also sampled lies far outside the noise of its samples."""
    for suite in DATA["suites"].values():
        for row in (row for row in suite["sets"] if "passed" in row):
            for rate, passed in zip(row["rates"], row["passed"], strict=True):
                n = row["samples"]
                noise = (rate * (1 - rate) / n) ** 0.5
                assert abs(passed / n - rate) < 4 * noise + 1 / n, row
