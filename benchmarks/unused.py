"""Costs of the plugin if it is installed and not used.

Collects a suite of 1,000 plain tests with the plugin and with ``-p no:skillopt``, in turn, and
prints the median of the paired ratios of the wall times (of the processor times in brackets, which
a busy machine disturbs less)::

    python benchmarks/unused.py [--pairs 9] [--target 1.03]

The exit code is 1 when the median of the processor times is above the target, or when ``openai``
was imported.
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

FILES, TESTS = 20, 50
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


def write_suite(folder: Path) -> None:
    """1,000 tests as plain as they come."""
    (folder / "pytest.ini").write_text("[pytest]\nnorecursedirs = bytecode\n")
    body = "".join(f"def test_{number}():\n    assert {number} >= 0\n\n" for number in range(TESTS))
    for number in range(FILES):
        (folder / f"test_file_{number}.py").write_text(body)


def environment(folder: Path) -> dict[str, str]:
    """Compiled code is kept, as on a user's machine, but not in this checkout."""
    unwanted = ("PYTEST_ADDOPTS", "PYTHONDONTWRITEBYTECODE")
    environ = {name: value for name, value in os.environ.items() if name not in unwanted}
    return environ | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def collect(folder: Path, *arguments: str) -> Cost:
    """Collect once in a process of its own."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-q", *arguments]
    environ = environment(folder)
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"collecting failed with {process.returncode}: {' '.join(command)}")
    return Cost(wall, usage.ru_utime + usage.ru_stime)


def imported(folder: Path) -> str:
    """Return the slow modules that the plugin has imported by the end of a collection."""
    (folder / "conftest.py").write_text(PROBE)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-s"]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    (folder / "conftest.py").unlink()
    return next(line for line in found.stdout.splitlines() if line.startswith("tests:"))


def pair(folder: Path, *, first_with: bool) -> tuple[Cost, Cost]:
    """With and without the plugin, in either order."""
    if first_with:
        with_plugin = collect(folder)
        return with_plugin, collect(folder, *WITHOUT)
    without = collect(folder, *WITHOUT)
    return collect(folder), without


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--target", type=float, default=1.03)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_suite(folder)
        probe = imported(folder)
        pair(folder, first_with=True)
        pairs = [pair(folder, first_with=bool(n % 2)) for n in range(options.pairs)]
    wall = statistics.median(a.wall / b.wall for a, b in pairs)
    processor = statistics.median(a.processor / b.processor for a, b in pairs)
    without = statistics.median(b.wall for _, b in pairs)
    print(f"{probe}; without the plugin {without:.2f} s")
    print(f"installed and not used: {wall - 1:+.1%} (processor time {processor - 1:+.1%})")
    return int(processor > options.target or "openai" in probe)


if __name__ == "__main__":
    sys.exit(main())
