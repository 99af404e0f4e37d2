"""Time that the example takes to train: from an empty cache, and once more from the cache.

Trains a copy of ``example_project`` twice on two workers and prints both wall times, their ratio
and the suite's pass rates::

    python benchmarks/example.py [-n 2]

The second run starts from the same SKILL.md and finds every reply in the cache. Before the first, a
short evaluation of another copy sees to it that all code is compiled, as after an installation. The
simulated model takes a few hundredths of a second for a reply; with a real one the first run takes
as long as its calls, the second no longer than here. The exit code is 1 when the first takes 60
seconds or more, the second a third of the first or more, when the second pays for a call, or when
the two find different skills.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parent.parent / "example_project"
LIMIT_SECONDS, LIMIT_RATIO = 60.0, 1 / 3


@dataclass(frozen=True, slots=True)
class Training:
    """One session."""

    seconds: float
    """Wall time of the whole pytest process."""
    result: dict[str, Any]

    @property
    def skill(self) -> dict[str, Any]:
        found: dict[str, Any] = self.result["skills"][0]
        return found

    @property
    def paid(self) -> int:
        """Calls that were not answered from the cache."""
        return sum(row["calls"] for row in self.result["usage"])

    def __str__(self) -> str:
        suite, test = self.skill["suite"], self.skill["test"]
        rates = [f"suite {_move(suite)}"] + ([f"test {_move(test)}"] if test else [])
        return (
            f"{self.seconds:.1f} s, {self.result['rollouts']} rollouts, {self.paid} paid calls; "
            f"{self.skill['status']}, {', '.join(rates)}"
        )


def _move(comparison: dict[str, Any]) -> str:
    before, after = comparison["before"], comparison["after"]
    return f"{before['rate']:.1%}" + (f" -> {after['rate']:.1%}" if after else "")


def copy_example(project: Path) -> None:
    """Copy the example with its SKILL.md as it was; runs and the cache of an earlier copy stay."""
    ignored = shutil.ignore_patterns(".skillopt", "__pycache__", ".pytest_cache")
    shutil.copytree(EXAMPLE, project, dirs_exist_ok=True, ignore=ignored)


def run(project: Path, bytecode: Path, *arguments: str) -> float:
    """Run pytest and return the wall seconds."""
    unwanted = ("PYTEST_ADDOPTS", "PYTHONDONTWRITEBYTECODE")
    environ = {name: value for name, value in os.environ.items() if name not in unwanted}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=project,
        env=environ | {"PYTHONPYCACHEPREFIX": str(bytecode)},
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - began
    if done.returncode > 1:
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return seconds


def train(project: Path, bytecode: Path, workers: str) -> Training:
    """Train once, from the skill as it is in the example."""
    copy_example(project)
    seconds = run(project, bytecode, "--skillopt-train", "-n", workers)
    latest = sorted((project / ".skillopt" / "runs").iterdir())[-1]
    return Training(seconds, json.loads((latest / "result.json").read_text(encoding="utf-8")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-n", dest="workers", default="2")
    workers = parser.parse_args().workers
    with tempfile.TemporaryDirectory() as folder:
        bytecode, warm, project = (Path(folder) / name for name in ("bytecode", "warm", "example"))
        copy_example(warm)
        run(warm, bytecode, "--skillopt", "--skillopt-rollouts=1", "-n", workers)
        first, second = (train(project, bytecode, workers) for _ in range(2))
    ratio = second.seconds / first.seconds
    print(f"empty cache: {first}")
    print(f"from cache:  {second}")
    print(f"the second run took {ratio:.0%} of the first")
    same = first.skill["after"] == second.skill["after"]
    if not same:
        print("the two runs found different skills")
    in_time = first.seconds < LIMIT_SECONDS and ratio < LIMIT_RATIO
    return int(not in_time or second.paid > 0 or not same)


if __name__ == "__main__":
    sys.exit(main())
