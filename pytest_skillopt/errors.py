"""Base class of errors that a user can fix."""

from __future__ import annotations


class UserError(Exception):
    """An error that a command prints, exiting with 1; it names the place and the way out."""
