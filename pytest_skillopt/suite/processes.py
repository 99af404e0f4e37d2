"""The processes that a rollout has started, to be ended with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

_PROC = Path("/proc")


def kill_descendants(*, younger_than: float | None = None) -> None:
    """Kill the descendants of this process.

    A process that has been handed over to init (a daemon) is no descendant any more and lives on.

    Args:
        younger_than: spare those that were started longer ago, in seconds; where their age is not
            known (there is no ``/proc``) all are spared.
    """
    for pid in _descendants(os.getpid()):
        if younger_than is None or _age(pid) < younger_than:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in _parents().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _parents() -> dict[int, int]:
    """Parent process id by process id, of all processes that can be seen."""
    if not (_PROC / "self" / "stat").exists():
        return _parents_from_ps()
    parents = {}
    for entry in os.listdir(_PROC):
        if entry.isdigit():
            fields = _stat(int(entry))
            if fields:
                parents[int(entry)] = int(fields[1])
    return parents


def _parents_from_ps() -> dict[int, int]:
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False
    ).stdout
    pairs = (line.split() for line in listing.splitlines())
    return {int(pid): int(parent) for pid, parent in pairs}


def _stat(pid: int) -> list[str]:
    """The fields of ``/proc/<pid>/stat`` from the state on; empty once the process is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _age(pid: int) -> float:
    """Seconds since a process was started; infinite where that is not known."""
    fields = _stat(pid)
    if not fields:
        return float("inf")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
