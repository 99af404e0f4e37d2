"""Ending rollouts from outside: signals, time-outs, and killing the processes they started."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, NoReturn

from pytest_skillopt.processes import kill_descendants
from pytest_skillopt.untrusted import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from pytest_skillopt.rollouts.rollout import Rollout, RolloutRequest


@contextlib.contextmanager
def handling(signum: signal.Signals, handler: Callable[[int, object], None]) -> Iterator[None]:
    """Call ``handler`` on a signal while open.

    Do nothing outside of the main thread, or if the signal has a handler already.
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


def handle(
    config: pytest.Config, signum: signal.Signals, handler: Callable[[int, object], None]
) -> None:
    """Call ``handler`` on a signal until the session has ended and printed its report."""
    stack = contextlib.ExitStack()
    stack.enter_context(handling(signum, handler))
    config.add_cleanup(stack.close)


def interrupt_main_thread() -> None:
    """Raise ``KeyboardInterrupt`` in the main thread, also in a blocking call."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextlib.contextmanager
def alarm(seconds: float, again: float, handler: Callable[[int, object], None]) -> Iterator[None]:
    """Call ``handler`` in the main thread, which is the calling one, after a number of seconds.

    Args:
        seconds: until the first call; more than 0.
        again: interval in seconds at which it is called once more while this is open.
        handler: of a signal.
    """
    previous = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds, again)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


_MOMENT = 0.1
"""Seconds within which the processes of a tree are ended one after another."""


def settled(run: Callable[[], Rollout]) -> Rollout:
    """Return a rollout; wait a moment before if it failed and processes of it have ended.

    A CI or an editor that ends a tree of processes may begin with those of a test: this process is
    then ended before it reports their failure, which would count as a wrong answer.
    """
    before = _ended_children()
    rollout = run()
    if rollout.outcome == "failed" and _ended_children() != before:
        time.sleep(_MOMENT)
    return rollout


def _ended_children() -> tuple[float, ...]:
    """Return what all ended children of this process took: it grows with each."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_minflt, used.ru_utime, used.ru_stime)


_BEFORE_THE_END: list[Callable[[], None]] = []


def before_the_end(function: Callable[[], None]) -> None:
    """Register a function that ``end_now`` calls first."""
    if function not in _BEFORE_THE_END:
        _BEFORE_THE_END.append(function)


def end_now() -> NoReturn:
    """End this process and its descendants without unwinding."""
    for function in _BEFORE_THE_END:
        function()
    kill_descendants()
    os._exit(1)


class Watchdog:
    """Call ``give_up`` from a separate thread when a rollout takes longer than ``timeout``.

    Args:
        timeout: seconds; 0: never.
        give_up: called once per rollout, with a message that says where it hangs.
    """

    def __init__(self, timeout: float, give_up: Callable[[RolloutRequest, str], None]) -> None:
        self._timeout = timeout
        self._give_up = give_up
        self._watched: dict[str, tuple[RolloutRequest, float, int]] = {}
        """Running rollouts, by key: request, start time, thread."""
        self._stopped = threading.Event()

    @property
    def watched(self) -> bool:
        """True while a rollout runs."""
        return bool(self._watched)

    def start(self) -> None:
        if self._timeout:
            threading.Thread(target=self._watch, name="skillopt-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    @contextlib.contextmanager
    def watching(self, request: RolloutRequest) -> Iterator[None]:
        """Watch a rollout that the calling thread runs while this is open."""
        key = request.key
        self._watched[key] = (request, time.monotonic(), threading.get_ident())
        try:
            yield
        finally:
            self._watched.pop(key, None)

    def _watch(self) -> None:
        while not self._stopped.wait(min(1.0, self._timeout / 10)):
            late = time.monotonic() - self._timeout
            for key, (request, since, thread) in list(self._watched.items()):
                if since < late and self._watched.pop(key, None) is not None:
                    limit = f"skillopt_timeout={self._timeout:g} seconds"
                    words = f"took longer than {limit}{_where(thread)}"
                    self._give_up(request, shorten(words, 1_000))


def _where(thread: int) -> str:
    """Return the innermost line of a thread outside of Python and installed packages."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        path = frame.f_code.co_filename
        if "site-packages" not in path and not path.startswith((sys.base_prefix, "<")):
            return f", at {path}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
