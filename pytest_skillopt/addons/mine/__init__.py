"""Add-on for test suites: draft tests, from a skill or transcripts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


class MineError(UserError):
    """Error that the user can fix."""


def configured(work: Callable[[pytest.Config], int], options: Sequence[str] = ()) -> int:
    """Load the project's pytest configuration, call ``work`` with it and return the exit code.

    Args:
        work: function from the configuration to an exit code; it may raise :class:`MineError`.
        options: further arguments of pytest, such as ``-o`` and ``skillopt_judge=...``.
    """
    project = _Project(work)
    code = int(pytest.main(["-p", "no:cacheprovider", "-q", *options], plugins=[project]))
    if project.error is not None:
        raise project.error
    return code if project.code is None else project.code


class _Project:
    """pytest plugin that replaces the session: nothing is collected."""

    def __init__(self, work: Callable[[pytest.Config], int]) -> None:
        self._work = work
        self.code: int | None = None
        self.error: Exception | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        from pytest_skillopt.model.types import ModelConfigError, ModelError

        try:
            self.code = self._work(config)
        except (UserError, ModelError, ModelConfigError) as error:
            self.error = error if isinstance(error, UserError) else MineError(str(error))
        return 0


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
