"""The processes that a process has started, and theirs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

_PROC = Path("/proc")


def kill_descendants(*, younger_than: float | None = None, of: int | None = None) -> None:
    """Kill the descendants of this process, or of another one.

    A daemon, whose parent is init, is not a descendant and lives on.

    Args:
        younger_than: age in seconds; spare older processes, and all if their age is unknown
            (without ``/proc``).
        of: id of the other process.
    """
    root = os.getpid() if of is None else of
    for pid in _descendants(root):
        if younger_than is None or _age(pid) < younger_than:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _descendants(root: int) -> list[int]:
    parents = _parents()
    found = [root]
    for above in found:
        found += [pid for pid, parent in parents.items() if parent == above]
    return found[1:]


def _parents() -> dict[int, int]:
    """Map process id to parent process id, for all visible processes."""
    if (_PROC / "self" / "stat").exists():
        fields = {int(name): _stat(int(name)) for name in os.listdir(_PROC) if name.isdigit()}
        return {pid: int(found[1]) for pid, found in fields.items() if found}
    command = ["ps", "-A", "-o", "pid=,ppid="]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return {}
    return {int(pid): int(parent) for pid, parent in map(str.split, listed.splitlines())}


def _stat(pid: int) -> list[str]:
    """Return the fields of ``/proc/<pid>/stat`` from the state on; empty if the process is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _age(pid: int) -> float:
    """Return the seconds since a process was started; infinite if unknown."""
    fields = _stat(pid)
    if not fields:
        return float("inf")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
