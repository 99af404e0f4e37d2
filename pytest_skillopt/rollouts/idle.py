"""Find tasks that pass whatever the agent does: run each once with one that answers nothing.

Nothing is paid for it: the fixtures of this package have a model that is silent, and the test
cannot open a connection, so that no agent or judge of its own is called. It counts in no figure and
no cap.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.rollouts.rollout import IDLE
from pytest_skillopt.rollouts.sampler import Sampler, Stop, StopRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_skillopt.tasks.task import SkillTask


def passed_by_nothing(
    sampler: Sampler, tasks: Sequence[SkillTask], versions: Mapping[str, str]
) -> list[SkillTask]:
    """List tasks that pass with an agent that does nothing, although they should not.

    Tasks that guard what must not break, and requests that should not load the skill, may pass.

    Args:
        sampler: over the workers of the run.
        tasks: the suite; those whose agent is not one of this package are left out.
        versions: SHA-256 of each skill, which the workers have, by path.

    Raises:
        StopRun: the session was interrupted.
    """
    asked = [
        task
        for task in tasks
        if "target" in task.roles and not (task.proxied or task.must_pass or task.trigger is False)
    ]
    aside = sampler.aside()
    wanted = [aside.request(task.id, versions[task.skill], IDLE, 0) for task in asked]
    try:
        taken = aside.take(wanted)
    except StopRun as stop:
        aside.settle()
        if stop.kind is Stop.INTERRUPTED:
            raise
        return []  # The training meets the same fault and reports it.
    return [task for task, rollout in zip(asked, taken, strict=True) if rollout.passed]


_LOCK = threading.Lock()
_PATCH = pytest.MonkeyPatch()
_open = 0
"""Number of tests that run without a network in this process."""


@contextlib.contextmanager
def no_network() -> Iterator[None]:
    """Refuse every new connection of this process over a network."""
    global _open
    with _LOCK:
        _open += 1
        if _open == 1:
            _PATCH.setattr(socket, "socket", _Refusing)
    try:
        yield
    finally:
        with _LOCK:
            _open -= 1
            if not _open:
                _PATCH.undo()


class _Refusing(socket.socket):
    def connect(self, address: Any) -> None:
        self._refuse()
        super().connect(address)

    def connect_ex(self, address: Any) -> int:
        self._refuse()
        return super().connect_ex(address)

    def _refuse(self) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            raise ConnectionRefusedError("a test with an agent that does nothing has no network")
