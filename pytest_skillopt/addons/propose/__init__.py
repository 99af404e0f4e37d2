"""Add-on for reviews and CI: pull requests for trained skills, CI jobs, nightly trainings."""

from __future__ import annotations

from pytest_skillopt.errors import UserError


class ProposeError(UserError):
    """Problem with git, the remote or the forge."""


class Refused(ProposeError):
    """Invalid proposal. Nothing was pushed."""


class BranchMoved(ProposeError):
    """Push by somebody else to the branch since it was read; their push is kept."""
