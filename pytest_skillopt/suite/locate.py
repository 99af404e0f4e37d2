"""Which skill file a test is about: its marker, the setting, or the one SKILL.md of the project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.skill.files import NoSkill, find_skill
from pytest_skillopt.suite.collect import MARKER

if TYPE_CHECKING:
    from collections.abc import Callable

_SELECTED = pytest.StashKey[str]()
_LIVE = pytest.StashKey[tuple[pytest.FixtureRequest, str]]()


def skill_locator(root: Path, setting: str, *, new: str = "") -> Callable[[str | None], str]:
    """From a marker's ``skill=`` (or None) to a path relative to the root, with ``/``.

    The search for the one SKILL.md is made once, and only if a task needs it; where there is none
    it is ``new``, if that is given.

    Raises (when called):
        SkillError: there is no SKILL.md, or several and nothing says which.
    """
    found: list[str] = []

    def locate(marked: str | None) -> str:
        named = marked or setting
        if named:
            return Path(named).as_posix()
        if not found:
            found.append(_find(root, new))
        return found[0]

    return locate


def _find(root: Path, new: str) -> str:
    try:
        return find_skill(root).relative_to(root).as_posix()
    except NoSkill:
        if new:
            return new
        raise


def select_skill(item: pytest.Item) -> None:
    """In an ordinary run: make the session-wide ``skill`` fixture that of this test.

    Where the test before had another skill, the fixture and all that depend on it are torn down.
    """
    if "skill" not in getattr(item, "fixturenames", ()):
        return
    marked = ""
    for mark in item.iter_markers(MARKER):
        marked = marked or str(mark.kwargs.get("skill") or "")
    stash = item.config.stash
    stash[_SELECTED] = marked
    live = stash.get(_LIVE, None)
    if live is not None and live[1] != marked:
        from pytest_skillopt.suite.internals.items import finish_fixture, fixture_of

        del stash[_LIVE]
        finish_fixture(fixture_of(live[0]), live[0])


def selected_skill(request: pytest.FixtureRequest) -> Path:
    """The skill file for a ``skill`` fixture that is being set up outside of a rollout.

    Raises:
        SkillError: there is no SKILL.md, or several and nothing says which.
    """
    config = request.config
    marked = config.stash.get(_SELECTED, "")
    config.stash[_LIVE] = (request, marked)
    locate = skill_locator(config.rootpath, config.getini("skillopt_skill") or "")
    option = config.getoption("skillopt_setting_skill")
    return config.rootpath / locate(marked or option or None)
