"""Base class of errors that a user can fix."""

from __future__ import annotations


class UserError(Exception):
    """An error that a command prints, exiting with 1; it names the place and the way out."""


class UsageError(UserError):
    """A name of something that does not exist, or cannot be meant; the command exits with 4."""
