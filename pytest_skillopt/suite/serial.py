"""Rollouts in this process, one after another, in the main thread."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from pytest_skillopt.suite.executor import cheapest
from pytest_skillopt.suite.interrupts import kill_descendants, sigterm_interrupts
from pytest_skillopt.suite.outcome import RolloutTimeout
from pytest_skillopt.suite.rollouts import InfraError, Rollout
from pytest_skillopt.suite.runner import RolloutRunner, SkillVersions, rollouts_only

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pytest

    from pytest_skillopt.suite.rollouts import RolloutRequest

_INSIST = 5.0
"""Seconds after which a rollout that swallowed its interrupt is interrupted again."""


class SerialExecutor:
    """Runs a queued request whenever ``next`` is called.

    A time-out (in seconds; 0: none) can only interrupt Python code of the main thread here, not
    what waits inside a C extension. Workers (``-n 1``) end in any case.
    """

    capacity = 1
    ended = ""

    def __init__(self, session: pytest.Session, *, timeout: float = 0.0) -> None:
        self._versions = SkillVersions()
        self._runner = RolloutRunner(session, self._versions)
        self._timeout = timeout
        self._pending: OrderedDict[str, RolloutRequest] = OrderedDict()
        self._last: RolloutRequest | None = None
        self._open = contextlib.ExitStack()
        self._open.enter_context(rollouts_only(session.config))
        self._open.enter_context(sigterm_interrupts())

    def add_skill(self, skill: str, files: Mapping[str, bytes]) -> None:
        self._versions.add_skill(skill, files)

    def add_version(self, skill: str, version: str, content: bytes) -> None:
        self._versions.add_version(skill, version, content)

    def submit(self, requests: Iterable[RolloutRequest]) -> None:
        self._pending |= {r.key: r for r in requests if r.key not in self._pending}

    def next(self) -> Rollout:
        if not self._pending:
            raise RuntimeError("no rollout is queued")
        request = self._last = cheapest(self._pending, self._last)
        try:
            with _interrupted_after(self._timeout, request.task):
                return self._runner.run(request)
        except RolloutTimeout as late:  # between the rollout's end and the alarm's
            return Rollout(request, "error", error=InfraError("timeout", str(late)))

    def cancel(self, keys: Iterable[str]) -> set[str]:
        return {key for key in keys if self._pending.pop(key, None)}

    def close(self) -> list[str]:
        stray = self._runner.close()
        self._open.close()
        self._versions.close()
        return stray


@contextlib.contextmanager
def _interrupted_after(seconds: float, task: str) -> Iterator[None]:
    possible = hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()
    if not seconds or not possible:
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
