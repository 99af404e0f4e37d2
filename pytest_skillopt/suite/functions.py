"""Rollouts that a plain function carries out, one after the other in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_skillopt.suite.rollouts import Rollout, RolloutRequest


class FunctionExecutor:
    """An executor for a world of one's own, such as a simulation."""

    capacity = 1
    ended = ""

    def __init__(self, run: Callable[[RolloutRequest, str], Rollout]) -> None:
        """Args:
        run: carries out a request under the text of its skill. ``request.task`` names the task,
            ``request.seed`` is a seed of this sample alone. What it raises ends the training.
        """
        self._run = run
        self._texts: dict[str, str] = {}
        self._queue: dict[str, RolloutRequest] = {}
        self.ran = 0
        """Rollouts carried out."""

    def add_version(self, skill: str, version: str, content: bytes) -> None:
        self._texts[version] = content.decode()

    def submit(self, requests: Iterable[RolloutRequest], *, urgent: bool = True) -> None:
        self._queue.update((request.key, request) for request in requests)

    def next(self, timeout: float | None = None) -> Rollout:
        if not self._queue:
            raise RuntimeError("nothing is queued, so nothing could ever arrive")
        request = self._queue.pop(next(iter(self._queue)))
        self.ran += 1
        return self._run(request, self._texts[request.version])

    def cancel(self, keys: Iterable[str]) -> set[str]:
        return {key for key in keys if self._queue.pop(key, None)}
