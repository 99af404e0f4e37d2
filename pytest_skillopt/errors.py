"""The base of errors that a user can put right."""

from __future__ import annotations


class UserError(Exception):
    """A command prints it and exits with 1; the message names the place and the way out."""
