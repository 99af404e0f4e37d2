"""Guard processes: each starts one agent, and ends all processes that the agent has started.

``python -I -S guard.py`` receives a socket for each run over its standard input, and forks a guard
for it. The guard stays an ancestor of every process that the agent starts, including those that
left their session or lost their parent. On request, or when its socket is closed, it ends the agent
and sends the wait status, or ``failed`` if no agent could be started. Once the socket is closed it
removes the run's scratch folder, in case the requesting process was killed before doing so.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_LARGEST_FILE = 4 << 30  # bytes; limit for each file that a run writes
_MOST_PROCESSES = 8_192  # more than the machine has at the start; root is not limited
_GRACE, _PATIENCE = 2.0, 5.0  # seconds after SIGTERM, and after SIGKILL
_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Fork a guard for each requested run; end after the last of them."""
    asked = socket.socket(fileno=0)
    gc.disable()
    _adopt_orphans()
    child_ended, signal_end = _child_pipe()
    guards: set[int] = set()
    while True:
        if child_ended in select.select([asked.fileno(), child_ended], [], [])[0]:
            os.read(child_ended, 64)
            _reap_guards(guards)
            continue
        if not (fds := socket.recv_fds(asked, 1, 1)[1]):
            break
        with socket.socket(fileno=fds[0]) as run:
            run.set_inheritable(False)
            if (forked := os.fork()) == 0:
                asked.close()
                os.close(child_ended)
                os.close(signal_end)
                status = 1
                try:
                    guard(run)
                    status = 0
                except Exception:
                    sys.excepthook(*sys.exc_info())  # to the run's standard error
                    with contextlib.suppress(OSError):
                        run.send(b"failed")  # a killed guard sends nothing
                os._exit(status)
            guards.add(forked)
    while guards:
        select.select([child_ended], [], [])
        os.read(child_ended, 64)
        _reap_guards(guards)


def _reap_guards(guards: set[int]) -> None:
    """Reap the guards that have ended; if one failed, kill the processes it has left.

    Such processes are re-parented to this one.
    """
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] in guards:
                guards.remove(ended[0])
                if ended[1]:
                    _kill_all(guards)


def _adopt_orphans() -> None:
    """Become the parent of every orphan below this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _child_pipe() -> tuple[int, int]:
    """Make a pipe that becomes readable when a child has ended."""
    child_ended, signal_end = os.pipe()
    os.set_blocking(signal_end, False)
    signal.set_wakeup_fd(signal_end)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return child_ended, signal_end


def guard(run: socket.socket) -> None:
    """Start the agent that the first line describes, and wait for or force its end."""
    line = run.recv(1 << 16)
    while b"\n" not in line and (more := run.recv(1 << 16)):
        line += more
    text, _, rest = line.partition(b"\n")
    argv, env, workspace, folder = json.loads(text)
    written = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    os.dup2(os.open(f"{folder}/err", written, 0o600), 2)
    os.chdir(workspace)
    _adopt_orphans()
    with contextlib.suppress(ValueError, LookupError, OSError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/loadavg", encoding="ascii") as file:
            most = int(file.read().split()[3].partition("/")[2]) + _MOST_PROCESSES
        soft, hard = (n % 2**64 for n in resource.getrlimit(resource.RLIMIT_NPROC))
        resource.setrlimit(resource.RLIMIT_NPROC, (min(most, soft), min(most, hard)))
    child_ended, _ = _child_pipe()
    files = [(0, f"{folder}/in", os.O_RDONLY), (1, f"{folder}/out", written)]
    own = _oom_score("1000")  # Short of memory, the system ends agents first.
    agent = os.posix_spawn(
        argv[0],
        argv,
        env,
        file_actions=[(os.POSIX_SPAWN_OPEN, n, path, how, 0o600) for n, path, how in files],
        setsid=True,
        setsigdef=[signal.SIGPIPE, signal.SIGCHLD],
    )
    _oom_score(own)
    word = rest or None
    while (status := _reap(agent)) is None and word is None:
        if run.fileno() in select.select([run.fileno(), child_ended], [], [])[0]:
            word = run.recv(16)
        else:
            os.read(child_ended, 64)
    for sign, patience in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _PATIENCE)):
        with contextlib.suppress(OSError):
            os.killpg(agent, sign)
        until = time.monotonic() + patience
        while status is None and time.monotonic() < until:
            time.sleep(0.01)
            status = _reap(agent)
    _kill_all()
    with contextlib.suppress(OSError):
        run.send(b"%d" % (status or 0))
    while word != b"":
        word = run.recv(16)
    with contextlib.suppress(RecursionError):  # The requesting process removes the rest.
        shutil.rmtree(folder, ignore_errors=True)


def _oom_score(score: str) -> str:
    """Set how soon the system ends this process and its children (Linux); return the old score."""
    with (
        contextlib.suppress(OSError),
        open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file,
    ):
        old = file.read()
        file.write(score)
        return old
    return score


def _reap(agent: int = 0) -> int | None:
    """Reap all ended children; return the agent's wait status if it is one of them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found = ended[1] if ended[0] == agent else found
    return found


def _kill_all(spared: Collection[int] = ()) -> None:
    """Kill all descendants: the orphans of a killed child are re-parented to this process."""
    until = time.process_time() + _PATIENCE  # On a busy machine this process hardly gets to run.
    while time.process_time() < until:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        pid = 0
        for pid in _children(spared):  # Killed one by one: a process may live on in a new child.
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        if not pid and (spared or sys.platform != "linux"):
            return


def _children(spared: Collection[int]) -> Iterator[int]:
    """Yield the children of this process but some, the newest first (Linux)."""
    found = os.listdir("/proc") if os.path.isdir("/proc/self") else ()
    for pid in sorted(map(int, filter(str.isdigit, found)), reverse=True):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
            parent = int(file.read().rpartition(b")")[2].split()[1])
            if parent == os.getpid() and pid not in spared:
                yield pid


if __name__ == "__main__":
    main()
