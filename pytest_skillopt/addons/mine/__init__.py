"""What helps a suite to grow: a starter suite, tests from transcripts, a calibrated judge."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


class MineError(UserError):
    """Something that the user can mend."""


def configured(work: Callable[[pytest.Config], int], options: Sequence[str] = ()) -> int:
    """Run ``work`` with pytest's configuration of the project around, in pytest's own way.

    Args:
        work: from the configuration to an exit code; it may raise :class:`MineError`.
        options: further arguments of pytest, such as ``-o`` and ``skillopt_judge=...``.
    """
    project = _Project(work)
    code = int(pytest.main(["-p", "no:cacheprovider", "-q", *options], plugins=[project]))
    if project.error is not None:
        raise project.error
    return code if project.code is None else project.code


class _Project:
    """Takes the place of the session: nothing is collected."""

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
    """Whether the user agrees to what was shown, or has agreed before.

    Raises:
        MineError: nobody is there to be asked.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise MineError(f"to {what} without being asked, give --yes")
    return input(f"{what}? [y/N] ").strip().lower() in ("y", "yes")


def nearest_skill(path: Path) -> Path:
    """The SKILL.md that a user names by its file or its folder.

    Raises:
        MineError: there is none.
    """
    file = path / "SKILL.md" if path.is_dir() else path
    if not file.is_file():
        raise MineError(f"there is no skill at {path}: name a SKILL.md or its folder")
    return file
