"""The process between us and an agent: starts it, and ends all that is left of it.

Run as ``python -I -S guard.py IN OUT ERR FOLDER COMMAND...``. Every process that the agent starts
stays below this one, those that left their session or lost their parent too, so that nothing
survives a run, and no run ends another's. It ends the agent when its standard input says so or is
closed, and writes the agent's wait status to its standard output. Then it waits until its standard
input is closed: whoever started it has removed the scratch folder by then, or was killed, and then
it removes the folder itself. Needs nothing of this package: it starts in 10 ms.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import time

_LARGEST_FILE = 4 << 30
"""Bytes of a single file that anything in a run may write."""
_GRACE, _PATIENCE = 2.0, 5.0
"""Seconds between the polite signal and the other, and for the dead to be collected."""
_PR_SET_CHILD_SUBREAPER = 36


def main(standard_in: str, out: str, err: str, folder: str, *argv: str) -> None:
    if sys.platform == "linux":  # Become the parent of every orphan below this process.
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    wake, bell = os.pipe()
    os.set_blocking(bell, False)
    signal.set_wakeup_fd(bell)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    written = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = [(0, standard_in, os.O_RDONLY), (1, out, written), (2, err, written)]
    agent = os.posix_spawn(
        argv[0],
        argv,
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, n, path, how, 0o600) for n, path, how in files],
        setsid=True,
        setsigdef=[signal.SIGPIPE, signal.SIGCHLD],
    )
    word = None
    while (status := _reap(agent)) is None and word is None:
        if 0 in select.select([0, wake], [], [])[0]:
            word = os.read(0, 16)
        else:
            os.read(wake, 64)
    for sign, patience in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _PATIENCE)):
        with contextlib.suppress(OSError):
            os.killpg(agent, sign)
        until = time.monotonic() + patience
        while status is None and time.monotonic() < until:
            time.sleep(0.01)
            status = _reap(agent)
    _kill_all()
    with contextlib.suppress(OSError):
        os.write(1, b"%d\n" % (status or 0))
    while word != b"":
        word = os.read(0, 16)
    if os.path.exists(folder):
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def _reap(agent: int) -> int | None:
    """Collect whoever has ended; the agent's status when it was among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found = ended[1] if ended[0] == agent else found
    return found


def _kill_all() -> None:
    """Kill what is left below this process; a child of the dead becomes a child of this one."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        parents = {}
        for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc/self") else ()):
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
        below = {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in below} - below:
            below |= more
        for pid in below - {os.getpid()}:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


if __name__ == "__main__":
    main(*sys.argv[1:])
