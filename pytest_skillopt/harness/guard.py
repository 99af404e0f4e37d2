"""The process between us and an agent: starts it, and ends all that is left of it.

Run as ``python -I -S guard.py IN OUT ERR FOLDER -- COMMAND...``. Every process that the agent
starts stays below this one, those that left their session or lost their parent too, so that nothing
survives a run, and no run ends another's. It ends the agent when its standard input says so or is
closed; closed without a word, whoever started it was killed: then it removes the scratch folder as
well. It writes the agent's wait status to its standard output. Needs nothing of this package: it
starts in 10 ms.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import time

GRACE = 2.0
"""Seconds between the polite signal and the other."""
LARGEST_FILE = 4 << 30
"""Bytes of a single file that anything in a run may write."""
_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE = 5.0


def main(arguments: list[str]) -> None:
    standard_in, out, err, folder, _, *argv = arguments
    _adopt_orphans()
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    wake, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    written = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    agent = os.posix_spawn(
        argv[0],
        argv,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, standard_in, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, out, written, 0o600),
            (os.POSIX_SPAWN_OPEN, 2, err, written, 0o600),
        ],
        setsid=True,
        setsigdef=[signal.SIGPIPE, signal.SIGCHLD],
    )
    status, word = _wait(agent, wake)
    if status is None:
        status = _end(agent)
    _kill_all(agent)
    if word == b"":
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.write(1, b"%d\n" % status)


def _wait(agent: int, wake: int) -> tuple[int | None, bytes | None]:
    """Until the agent ends (its status) or its time does (the word; empty: nobody is left)."""
    while True:
        status = _reap(agent)
        if status is not None:
            return status, None
        ready, _, _ = select.select([0, wake], [], [])
        if 0 in ready:
            return None, os.read(0, 16)
        os.read(wake, 64)


def _reap(agent: int) -> int | None:
    """Collect whoever has ended; the agent's status when it was among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == agent:
                found = status
    return found


def _end(agent: int) -> int:
    """Ask it to end, then end it."""
    for sign, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, _PATIENCE)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(agent, sign)
        until = time.monotonic() + patience
        while time.monotonic() < until:
            status = _reap(agent)
            if status is not None:
                return status
            time.sleep(0.01)
    return 0


def _kill_all(agent: int) -> None:
    """Kill what is left below this process; a child of the dead becomes a child of this one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(agent, signal.SIGKILL)
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        for pid in _below(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def _below(root: int) -> list[int]:
    """Descendants of a process, where there is a ``/proc``."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found, waiting = [], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _adopt_orphans() -> None:
    """Become the parent of every orphan below this process (Linux)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
