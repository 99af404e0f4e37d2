"""What the sampler enters its rollouts into: the ledger of the run, and its accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pytest_skillopt.model.types import Usage
    from pytest_skillopt.suite.rollouts import Rollout

OWN_AGENT = "own agent"
"""Role, in the accounts, of what tests report with ``rollout.usage``."""


class Ledger(Protocol):
    """Where finished rollouts are kept."""

    def get(self, key: str) -> Rollout | None:
        """The measured or skipped rollout with this request key, or None."""

    def put(self, rollout: Rollout) -> None:
        """Keep a rollout, for good, before anything depends on it."""

    def __contains__(self, key: str) -> bool: ...


class MemoryLedger:
    """Keeps finished rollouts for as long as the process lives."""

    def __init__(self) -> None:
        self._rollouts: dict[str, Rollout] = {}

    def get(self, key: str) -> Rollout | None:
        return self._rollouts.get(key)

    def put(self, rollout: Rollout) -> None:
        if rollout.error is None:
            self._rollouts[rollout.request.key] = rollout

    def __contains__(self, key: str) -> bool:
        return key in self._rollouts


class Meter(Protocol):
    """The accounts of the run, for calls that tests make by themselves."""

    @property
    def bounded(self) -> bool:
        """Whether there is a spending cap at all."""

    def report(self, usage: Usage, account: tuple[str, str, str]) -> None:
        """Enter what was paid, under a role, a stage and a task."""

    def check(self) -> None:
        """Raises:
        CapReached: a spending cap leaves nothing.
        """
