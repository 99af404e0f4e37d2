"""What ends rollouts from outside: signals, time-outs, and an end to what they have started."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pytest_skillopt.suite.rollouts import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_skillopt.suite.rollouts import RolloutRequest


@contextlib.contextmanager
def handling(signum: signal.Signals, handler: Callable[[int, object], None]) -> Iterator[None]:
    """While open, a signal calls ``handler``.

    Does nothing in another thread than the main one, or where somebody handles the signal already.
    """
    usual = signal.getsignal(signum)
    elsewhere = threading.current_thread() is not threading.main_thread()
    if elsewhere or usual not in (signal.SIG_DFL, signal.default_int_handler):
        yield
        return
    signal.signal(signum, handler)
    try:
        yield
    finally:
        signal.signal(signum, usual)


def sigterm_interrupts() -> contextlib.AbstractContextManager[None]:
    """While open, SIGTERM raises ``KeyboardInterrupt`` in the main thread."""
    return handling(signal.SIGTERM, _interrupt)


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt("SIGTERM")


_PROC = Path("/proc")
_BEFORE_THE_END: list[Callable[[], None]] = []


def before_the_end(function: Callable[[], None]) -> None:
    """Have a function called before this process ends without unwinding."""
    if function not in _BEFORE_THE_END:
        _BEFORE_THE_END.append(function)


def end_now() -> NoReturn:
    """End this process, and all that it has started, without unwinding."""
    for function in _BEFORE_THE_END:
        function()
    kill_descendants()
    os._exit(1)


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
    parents = _parents()
    found = [root]
    for above in found:
        found += [pid for pid, parent in parents.items() if parent == above]
    return found[1:]


def _parents() -> dict[int, int]:
    """Parent process id by process id, of all processes that can be seen."""
    if (_PROC / "self" / "stat").exists():
        fields = {int(name): _stat(int(name)) for name in os.listdir(_PROC) if name.isdigit()}
        return {pid: int(found[1]) for pid, found in fields.items() if found}
    command = ["ps", "-A", "-o", "pid=,ppid="]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {int(pid): int(parent) for pid, parent in map(str.split, listed.splitlines())}


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


_GRACE = 3.0
"""Seconds between the watchdog's turn and the end of a process that did not give it one."""


class Watchdog:
    """Calls ``give_up`` from a thread of its own when a rollout takes longer than ``timeout``."""

    def __init__(self, timeout: float, give_up: Callable[[RolloutRequest, str], None]) -> None:
        """Args:
        timeout: seconds; 0: never.
        give_up: called once a rollout, with a message that says where it hangs.
        """
        self._timeout = timeout
        self._give_up = give_up
        self._watched: dict[str, tuple[RolloutRequest, float, int]] = {}
        """Rollouts that run: since when, and in which thread."""
        self._stopped = threading.Event()

    @property
    def watched(self) -> bool:
        """Whether a rollout runs."""
        return bool(self._watched)

    def start(self) -> None:
        if self._timeout:
            threading.Thread(target=self._watch, name="skillopt-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    @contextlib.contextmanager
    def watching(self, request: RolloutRequest) -> Iterator[None]:
        """The calling thread runs a rollout while this is open."""
        key = request.key
        self._watched[key] = (request, time.monotonic(), threading.get_ident())
        try:
            yield
        finally:
            self._watched.pop(key, None)

    @contextlib.contextmanager
    def backed(self) -> Iterator[None]:
        """End the process a little later, should the watchdog's thread never get its turn.

        Compiled code that keeps the interpreter's lock, such as a regular expression that
        backtracks without end, keeps it from every thread of Python.
        """
        if not self._timeout:
            yield
            return
        with open(os.devnull, "w") as nowhere:
            faulthandler.dump_traceback_later(self._timeout + _GRACE, exit=True, file=nowhere)
            try:
                yield
            finally:
                faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        while not self._stopped.wait(min(1.0, self._timeout / 10)):
            late = time.monotonic() - self._timeout
            for key, (request, since, thread) in list(self._watched.items()):
                if since < late and self._watched.pop(key, None) is not None:
                    limit = f"took longer than skillopt_timeout={self._timeout:g} seconds"
                    words = f"{request.task} {limit}{_where(thread)}"
                    self._give_up(request, shorten(words, 1_000))


def _where(thread: int) -> str:
    """The innermost line of a thread that is neither Python's own nor an installed package's."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        path = frame.f_code.co_filename
        if "site-packages" not in path and not path.startswith((sys.base_prefix, "<")):
            return f", at {path}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
