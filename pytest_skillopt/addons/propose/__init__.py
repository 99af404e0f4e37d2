"""What a training found, brought to people: pull requests, and trainings that start themselves."""

from __future__ import annotations

from pytest_skillopt.errors import UserError


class ProposeError(UserError):
    """Something outside the proposal is not as it must be: git, the remote, the forge."""


class Refused(ProposeError):
    """The proposal itself is not to be trusted. Nothing was pushed."""


class BranchMoved(ProposeError):
    """Somebody pushed to the branch after it was looked at; their push is kept."""
