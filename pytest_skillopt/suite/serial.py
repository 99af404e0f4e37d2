"""Run rollouts in the main thread of this process, one after another."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING

from pytest_skillopt.suite.executor import WorkersExecutor, cheapest
from pytest_skillopt.suite.interrupts import kill_descendants, sigterm_interrupts
from pytest_skillopt.suite.outcome import RolloutTimeout
from pytest_skillopt.suite.rollouts import Rollout
from pytest_skillopt.suite.runner import RolloutRunner, rollouts_only

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from pytest_skillopt.suite.rollouts import RolloutRequest

_INSIST = 5.0
"""Interval in seconds at which a rollout that swallows its interrupt is interrupted again."""


class SerialExecutor(WorkersExecutor):
    """Run a queued request whenever ``next`` is called.

    The time-out (in seconds; 0: none) can only interrupt Python code of the main thread, not a C
    extension; workers (``-n 1``) are ended in any case.
    """

    def __init__(self, session: pytest.Session, *, timeout: float = 0.0) -> None:
        super().__init__()
        self._runner = RolloutRunner(session, self._versions)
        self._timeout = timeout
        self._last: RolloutRequest | None = None
        self._open = contextlib.ExitStack()
        self._open.enter_context(rollouts_only(session.config))
        self._open.enter_context(sigterm_interrupts())

    def next(self) -> Rollout:
        if not self._pending:
            raise RuntimeError("no rollout is queued")
        request = self._last = cheapest(self._pending, self._last)
        try:
            with _interrupted_after(self._timeout, request.task):
                return self._runner.run(request)
        except RolloutTimeout as late:  # raised between the rollout's end and the timer's
            return Rollout.of_error(request, "timeout", str(late))

    def close(self) -> list[str]:
        stray = self._runner.close()
        self._open.close()
        self._versions.close()
        return stray


@contextlib.contextmanager
def _interrupted_after(seconds: float, task: str) -> Iterator[None]:
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(signum: int, frame: object) -> None:
        kill_descendants(younger_than=seconds + _INSIST)
        raise RolloutTimeout(f"{task} took longer than skillopt_timeout={seconds:g} seconds")

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, _INSIST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
