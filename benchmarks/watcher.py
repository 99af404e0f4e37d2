"""Costs of a watcher for a running training: ``python benchmarks/watcher.py [--workers 2]``.

Trains the example with its simulated model (so the training costs as little as one can) while
``pytest-skillopt watch`` follows it and a reader of its events stands for the open page. Prints the
CPU seconds of both, from the operating system.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parent.parent
TICKS = os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """Seconds of user and system time of a process until now, without those of its children."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def begun(home: Path) -> Path:
    """Return the directory of the run, as soon as its journal is there."""
    while True:
        for journal in (home / "runs").glob("*/journal.jsonl"):
            return journal.parent
        time.sleep(0.05)


def read(url: str, seen: list[int]) -> None:
    """As the page does: every event, to its end."""
    with urllib.request.urlopen(f"{url}events") as events:
        seen.extend(len(line) for line in events)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="0", help="of pytest-xdist (default: none)")
    workers = parser.parse_args().workers
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        command = [sys.executable, "-m", "pytest", "--skillopt-train", "-q", "-n", workers]
        options = ["-o", f"skillopt_dir={home}", "-o", "skillopt_write=no"]
        training = subprocess.Popen(
            [*command, *options], cwd=ROOT / "example_project", stdout=subprocess.DEVNULL
        )
        run = begun(home)
        watch = [sys.executable, "-m", "pytest_skillopt", "watch", str(run), "--no-open"]
        watcher = subprocess.Popen(watch, stdout=subprocess.PIPE, text=True)
        assert watcher.stdout is not None
        url = watcher.stdout.readline().split()[-1]
        start, began = cpu(watcher.pid), time.monotonic()
        seen: list[int] = []
        threading.Thread(target=read, args=(url, seen), daemon=True).start()
        _, status, used = os.wait4(training.pid, 0)
        seconds = time.monotonic() - began
        watched = cpu(watcher.pid) - start
        watcher.send_signal(signal.SIGINT)
        watcher.wait()
        rollouts = (run / "journal.jsonl").read_bytes().count(b'"kind": "rollout"')
        trained = used.ru_utime + used.ru_stime
        print(
            f"training: {trained:.1f} s of CPU in {seconds:.0f} s, {rollouts} rollouts, {status=}"
        )
        print(
            f"watcher: {start:.2f} s to start, then {watched:.2f} s of CPU, {len(seen)} lines read"
        )
        print(
            f"the watcher took {watched / trained:.2%} of the training's CPU time, and "
            f"{watched / seconds:.2%} of one core while the training ran"
        )


if __name__ == "__main__":
    main()
