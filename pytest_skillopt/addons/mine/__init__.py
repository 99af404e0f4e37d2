"""Add-on for test suites: draft tests, from a skill or transcripts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pytest_skillopt.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


class MineError(UserError):
    """Error that the user can fix."""


def confirmed(what: str, yes: bool) -> bool:
    """Ask the user to confirm, unless ``yes`` is given.

    Raises:
        MineError: standard input is not a terminal.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise MineError(f"to {what} without a terminal to confirm it, add --yes")
    return input(f"{what}? [y/N] ").strip().lower() in ("y", "yes")


def nearest_skill(path: Path) -> Path:
    """Return the SKILL.md that a user names by its file or its folder.

    Raises:
        MineError: there is none.
    """
    file = path / "SKILL.md" if path.is_dir() else path
    if not file.is_file():
        raise MineError(f"there is no skill at {path}: name a SKILL.md or its folder")
    return file
