"""Errors of proposals that a user can fix."""

from __future__ import annotations

from pytest_skillopt.errors import UserError


class Refused(UserError):
    """Invalid proposal. Nothing was pushed."""


class BranchMoved(UserError):
    """Push by somebody else to the branch since it was read; their push is kept."""
