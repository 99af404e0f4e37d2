"""The protocol between those who want samples and those who take them.

The optimizer and the gate never know which executor runs: in this process, on pytest-xdist
workers, or in lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_skillopt.suite.rollouts import Rollout, RolloutRequest


class Executor(Protocol):
    """Requests in, rollouts out as they finish.

    An executor keeps no record of what it has done and retries nothing: every submitted request
    comes back exactly once, as a measurement or as an ``error`` rollout, unless it was cancelled.
    """

    @property
    def capacity(self) -> int:
        """How many rollouts can run at once, at least 1."""

    @property
    def ended(self) -> str:
        """Why no rollout will be run any more; empty while they are."""

    def add_version(self, skill: str, version: str, content: bytes) -> None:
        """Make a version of a skill known before the first request that names it."""

    def submit(self, requests: Iterable[RolloutRequest], *, urgent: bool = True) -> None:
        """Queue requests; those that are not urgent run when nothing urgent waits (prefetching).

        A request (by its key) that is queued already only moves up when it is urgent now, and one
        that runs already, or has ended and was not fetched, is not run twice.
        """

    def next(self, timeout: float | None = None) -> Rollout | None:
        """Block until a rollout has finished and return it; None when ``timeout`` seconds passed.

        Raises:
            ExecutorClosed: the session was interrupted, or no worker is left.
            RuntimeError: nothing is queued or running, so nothing could ever arrive.
        """

    def cancel(self, keys: Iterable[str]) -> set[str]:
        """Drop queued requests and return the keys dropped; what runs already still comes back."""


class SkillExecutor(Executor, Protocol):
    """An executor over the items of a pytest session, which needs the files of a skill too."""

    def add_skill(self, skill: str, files: Mapping[str, bytes]) -> None:
        """Make the files beside a skill's document known, by relative path with ``/``."""


class ExecutorClosed(Exception):
    """No rollout will arrive any more: the session was interrupted or has lost its workers."""
