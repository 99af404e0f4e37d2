"""Tasks that cost a worker or a time-out whenever they run, so that they are not run for ever."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_skillopt.suite.rollouts import InfraError, Rollout

if TYPE_CHECKING:
    from pytest_skillopt.suite.rollouts import RolloutRequest

_COSTLY = ("worker", "timeout")
"""Errors that a task brings about itself and that cost a process or minutes each."""
MOST = 5
"""Of them in a row, under one version, before a task is not run again under it."""
_VERSIONS = 2
"""Versions under which a task that was never measured has to be given up, to be so under all."""


class Quarantine:
    """The costly errors of one session. See docs/decisions/gate-errors.md."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        """A line for each task that was given up under a version."""
        self._in_a_row: Counter[tuple[str, str]] = Counter()
        self._given_up: dict[str, dict[str, InfraError]] = {}
        """By task, the last error under each version under which it is not run again."""
        self._tired: set[str] = set()
        """Tasks that have used up their attempts since they were last measured."""
        self._measured: set[str] = set()

    def measured(self, request: RolloutRequest) -> None:
        """A sample was no error."""
        self._measured.add(request.task)
        self._tired.discard(request.task)
        self._in_a_row.pop((request.task, request.version), None)

    def failed(self, request: RolloutRequest, error: InfraError) -> None:
        """An attempt ended in an error."""
        if error.kind not in _COSTLY:
            return
        key = request.task, request.version
        self._in_a_row[key] += 1
        if self._in_a_row[key] == MOST:
            self._given_up.setdefault(request.task, {})[request.version] = error
            self.notes.append(
                f"{request.task} is not run again under version {request.version[:10]} of the "
                f"skill: {MOST} times in a row it ended so: {error.message}"
            )

    def attempts(self, request: RolloutRequest, error: InfraError, most: int) -> int:
        """How often a sample may be tried that ended in this error, of ``most`` in general."""
        if self.holds(request):
            return 0
        return 1 if error.kind in _COSTLY and request.task in self._tired else most

    def gave_up(self, request: RolloutRequest, error: InfraError) -> None:
        """A sample has used up its attempts: further ones of the task have one each."""
        if error.kind in _COSTLY:
            self._tired.add(request.task)

    def holds(self, request: RolloutRequest) -> bool:
        """Whether the request is not to be run."""
        versions = self._given_up.get(request.task, {})
        never = len(versions) >= _VERSIONS and request.task not in self._measured
        return never or request.version in versions

    def stand_in(self, request: RolloutRequest) -> Rollout:
        """The error in the place of one more that is held."""
        last = next(reversed(self._given_up[request.task].values()))
        error = InfraError(last.kind, f"not run again after {MOST} errors: {last.message}")
        return Rollout(request, "error", error=error)
