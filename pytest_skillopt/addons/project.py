"""The pytest configuration and the runs of a project, for commands that run no tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt import Document
from pytest_skillopt.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt.run.directory import Home


def version_of_run(home: Home, run: str, version: str) -> Document:
    """Read a version of a skill that a run has stored.

    Raises:
        UserError: it is missing, or its content is not what its name says.
    """
    path = home.runs / run / "skills" / f"{version}.md"
    try:
        found = Document.unpack(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if found.version != version:
        raise UserError(f"{path}: the content does not have this SHA-256; nothing was written")
    return found


def configured(work: Callable[[pytest.Config], int]) -> int:
    """Load the project's pytest configuration, call ``work`` with it and return its exit code.

    Raises:
        UserError: as ``work``, or a model failed.
    """
    from pytest_skillopt.model.types import ModelConfigError, ModelError

    try:
        return int(pytest.main(["-p", "no:cacheprovider", "-q"], plugins=[_Project(work)]))
    except (ModelError, ModelConfigError) as error:
        raise UserError(str(error)) from None


class _Project:
    """pytest plugin that replaces the session: nothing is collected."""

    def __init__(self, work: Callable[[pytest.Config], int]) -> None:
        self._work = work

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        return self._work(config)
