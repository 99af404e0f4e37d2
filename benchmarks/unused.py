"""Costs of the plugin if it is installed and not used, whether or not the project names it.

Runs a suite of 100 plain tests with the plugin and with ``-p no:skillopt``, in turn, in a project
without any key of the plugin and in one with some, and prints the median of the differences::

    python benchmarks/unused.py [--pairs 25] [--target 12]

The exit code is 1 when a processor time is above the target in milliseconds, or when
``openai`` was imported.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

FILES, TESTS = 4, 25
WITHOUT = ("-p", "no:skillopt")
HEAVY = ("openai", "pydantic", "diskcache", "jinja2", "yaml", "markdown_it")
PROBE = f"""
import sys

def pytest_collection_finish(session):
    found = sorted({set(HEAVY)!r} & sys.modules.keys())
    print("tests:", len(session.items), "heavy:", ",".join(found) or "none")
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one process."""

    wall: float
    processor: float


KEYS = """
skillopt_target = openai:a-model
skillopt_max_cost = 3
skillopt_lanes = 4
"""


def write_suite(folder: Path) -> None:
    """100 tests as plain as they come."""
    body = "".join(f"def test_{number}():\n    assert {number} >= 0\n\n" for number in range(TESTS))
    for number in range(FILES):
        (folder / f"test_file_{number}.py").write_text(body)


def environment(folder: Path) -> dict[str, str]:
    """Compiled code is kept, as on a user's machine, but not in this checkout."""
    unwanted = ("PYTEST_ADDOPTS", "PYTHONDONTWRITEBYTECODE")
    environ = {name: value for name, value in os.environ.items() if name not in unwanted}
    return environ | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def run(folder: Path, *arguments: str) -> Cost:
    """Run the suite once in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-q", *arguments]
    environ = environment(folder)
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the suite failed with {process.returncode}: {' '.join(command)}")
    return Cost(wall, usage.ru_utime + usage.ru_stime)


def imported(folder: Path) -> str:
    """Return the slow modules that the plugin has imported by the end of a session."""
    (folder / "conftest.py").write_text(PROBE)
    command = [sys.executable, "-m", "pytest", "-q", "-s"]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    (folder / "conftest.py").unlink()
    return next(line for line in found.stdout.splitlines() if line.startswith("tests:"))


def pair(folder: Path, *, first_with: bool) -> tuple[Cost, Cost]:
    """With and without the plugin, in either order."""
    if first_with:
        with_plugin = run(folder)
        return with_plugin, run(folder, *WITHOUT)
    without = run(folder, *WITHOUT)
    return run(folder), without


def measure(folder: Path, keys: str, pairs: int) -> tuple[float, float]:
    """Processor and wall time in milliseconds that the plugin adds: the median of the pairs.

    The difference of the shortest runs varied by 25 ms: one lucky process decided it.
    """
    (folder / "pytest.ini").write_text(f"[pytest]\nnorecursedirs = bytecode\n{keys}")
    pair(folder, first_with=True)
    costs = [pair(folder, first_with=bool(n % 2)) for n in range(pairs)]
    processor = statistics.median(a.processor - b.processor for a, b in costs)
    wall = statistics.median(a.wall - b.wall for a, b in costs)
    return 1000 * processor, 1000 * wall


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=25)
    parser.add_argument("--target", type=float, default=12.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_suite(folder)
        probe = imported(folder)
        print(probe)
        highest = 0.0
        for case, keys in (("not named", ""), ("named", KEYS)):
            processor, wall = measure(folder, keys, options.pairs)
            print(f"installed, not used, {case}: {processor:+.1f} ms ({wall:+.1f} ms of wall time)")
            highest = max(highest, processor)
    return int(highest > options.target or "openai" in probe)


if __name__ == "__main__":
    sys.exit(main())
