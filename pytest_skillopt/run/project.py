"""The pytest configuration and the runs of a project, for commands that run no tests."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.errors import UserError
from pytest_skillopt.skill.trained import check_kind
from pytest_skillopt.skill.version import NO_SKILL, Version, place_of
from pytest_skillopt.untrusted import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt.model.types import Model, Role
    from pytest_skillopt.run.directory import Home
    from pytest_skillopt.run.result import SkillResult

CONFIG_FILES = (
    "pytest.toml",
    ".pytest.toml",
    "pytest.ini",
    ".pytest.ini",
    "pyproject.toml",
    "tox.ini",
    "setup.cfg",
)
"""Files in pytest's order of precedence (``_pytest.config.findpaths.locate_config``)."""


def version_of_run(home: Home, run: str, version: str) -> Version:
    """Read a version of a skill that a run has stored.

    Raises:
        UserError: it is missing, or its content is not what its name says.
    """
    if version == NO_SKILL.digest:
        return NO_SKILL
    path = home.runs / run / "skills" / f"{version}.md"
    try:
        found = Version.unpack(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if found.digest != version:
        raise UserError(f"{path}: the content does not have this SHA-256")
    return found


def change_of_run(home: Home, run: str, skill: SkillResult) -> tuple[Version, Version]:
    """Read the versions before and after a run, which may come from elsewhere.

    Raises:
        UserError: one is missing, or one of their files is not a text document of the project.
    """
    before, after = (version_of_run(home, run, name) for name in (skill.before, skill.after))
    for place in sorted({place_of(skill.path, name) for name in (*before, *after)}):
        if place.startswith(("/", "../")):
            raise UserError(f"{place} lies outside of the project")
        check_kind(place)
    return before, after


def with_model(role: Role, work: Callable[[pytest.Config, Model], int]) -> int:
    """Load the project's pytest configuration, call ``work`` with a model; return its exit code.

    The caps hold, and replies that are paid for are stored in the project's cache.

    Raises:
        UserError, ModelError: as ``work``, or the model cannot be used.
    """
    from pytest_skillopt.model.cache import Replies
    from pytest_skillopt.model.roles import Models
    from pytest_skillopt.run.directory import Home

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(config: pytest.Config) -> int:
        models = Models.of(config)
        replies = Replies(models.settings.cache)
        model = models.capped(role, replies)
        Home(config.rootpath / models.settings.dir).keep(replies)
        code = work(config, model)
        for note in replies.notes:
            sys.stderr.write(shown(f"note: {note}\n"))
        return code

    # In place of a session: nothing is collected.
    plugin = SimpleNamespace(pytest_cmdline_main=pytest_cmdline_main)
    return int(pytest.main(["-p", "no:cacheprovider", "-q"], plugins=[plugin]))
