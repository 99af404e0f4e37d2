"""Secrets leave a rollout before it leaves the process: for the journal, the reports, any prompt."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from pytest_skillopt.suite.rollouts import Rollout


def redacted(rollout: Rollout) -> Rollout:
    """The rollout without the secrets of this process's environment and without known shapes."""
    error = rollout.error
    return replace(
        rollout,
        message=redact(rollout.message),
        feedback=redact(rollout.feedback),
        output=redact(rollout.output),
        transcript=tuple(replace(m, content=redact(m.content)) for m in rollout.transcript),
        error=replace(error, message=redact(error.message)) if error else None,
    )
