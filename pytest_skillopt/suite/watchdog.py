"""Notices rollouts that take too long."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.suite.context import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_skillopt.suite.rollouts import RolloutRequest

_GRACE = 3.0
"""Seconds between the watchdog's turn and the end of a process that did not give it one."""


@dataclass(frozen=True, slots=True)
class _Watched:
    request: RolloutRequest
    since: float
    thread: int


class Watchdog:
    """Calls ``give_up`` from a thread of its own when a rollout takes longer than ``timeout``."""

    def __init__(self, timeout: float, give_up: Callable[[RolloutRequest, str], None]) -> None:
        """Args:
        timeout: seconds; 0: never.
        give_up: called once a rollout, with a message that says where it hangs.
        """
        self._timeout = timeout
        self._give_up = give_up
        self._watched: dict[str, _Watched] = {}
        self._stopped = threading.Event()

    def start(self) -> None:
        if self._timeout:
            threading.Thread(target=self._watch, name="skillopt-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    @contextlib.contextmanager
    def watching(self, request: RolloutRequest) -> Iterator[None]:
        """The calling thread runs a rollout while this is open."""
        key = request.key
        self._watched[key] = _Watched(request, time.monotonic(), threading.get_ident())
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
            for key, watched in list(self._watched.items()):
                if watched.since < late and self._watched.pop(key, None) is not None:
                    self._give_up(watched.request, self._message(watched))

    def _message(self, watched: _Watched) -> str:
        limit = (
            f"{watched.request.task} took longer than skillopt_timeout={self._timeout:g} seconds"
        )
        return shorten(limit + _where(watched.thread), 1_000)


def _where(thread: int) -> str:
    """The innermost line of a thread that is neither Python's own nor an installed package's."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        path = frame.f_code.co_filename
        if "site-packages" not in path and not path.startswith((sys.base_prefix, "<")):
            return f", at {path}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
