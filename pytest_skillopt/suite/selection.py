"""Select the tasks among the collected tests and the skill file of each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.settings import ini
from pytest_skillopt.skill.document import SKILL_FILE, SkillError
from pytest_skillopt.skill.files import NoSkill, find_skill, skill_paths
from pytest_skillopt.suite.tasks import MARKER, collect_tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.tasks import SkillTask


_SELECTED = pytest.StashKey[pytest.Item]()
_LOCATOR = pytest.StashKey["SkillLocator"]()
_LIVE = pytest.StashKey[tuple[pytest.FixtureRequest, str]]()


class SkillLocator:
    """Find the path of an item's skill file, relative to the root, with ``/``.

    The first of these counts: the marker's ``skill=``, the setting, the nearest SKILL.md (see
    ``find_skill``), ``new`` if the project has none.

    Raises:
        SkillError: there is none, or the choice between several is ambiguous.
    """

    def __init__(self, root: Path, setting: str, *, new: str = "") -> None:
        self._root = root
        self._setting = setting
        self._new = new
        self._found: dict[Path, str] = {}
        self._skills: list[Path] | None = None

    def __call__(self, item: pytest.Item) -> str:
        for mark in item.iter_markers(MARKER):
            if mark.kwargs.get("skill"):
                path = Path(mark.kwargs["skill"])
                inside = path.is_absolute() and path.is_relative_to(self._root)
                return (path.relative_to(self._root) if inside else path).as_posix()
        return self.nearest(item.path.parent)

    def nearest(self, folder: Path) -> str:
        """Return the skill of tests in a folder whose markers name none."""
        if self._setting:
            return Path(self._setting).as_posix()
        if folder not in self._found:
            if self._skills is None:
                self._skills = skill_paths(self._root)
            try:
                found = find_skill(self._root, folder, self._skills)
                self._found[folder] = found.relative_to(self._root).as_posix()
            except NoSkill:
                if not self._new:
                    raise
                self._found[folder] = self._new
        return self._found[folder]


def select_skill(item: pytest.Item) -> None:
    """Select the test's skill for the session-wide ``skill`` fixture, in an ordinary run.

    If the previous test had another skill, tear down the fixture and all that depend on it.
    """
    stash = item.config.stash
    stash[_SELECTED] = item
    live = stash.get(_LIVE, None)
    if live is not None and live[1] != chosen_skill(item):
        from pytest_skillopt.suite.internals import finish_fixture

        del stash[_LIVE]
        finish_fixture(live[0])


def selected_skill(request: pytest.FixtureRequest) -> Path:
    """Return the skill file for a ``skill`` fixture that is set up outside of a rollout."""
    config = request.config
    locate = _locator(config)
    item = config.stash.get(_SELECTED, None)
    if item is None:  # requested by name in a test that does not declare it
        return config.rootpath / locate.nearest(config.rootpath)
    config.stash[_LIVE] = (request, chosen_skill(item))
    return config.rootpath / locate(item)


def chosen_skill(item: pytest.Item) -> str:
    """Return the skill of a test; empty if there is none, which the fixture reports."""
    try:
        return _locator(item.config)(item)
    except SkillError:
        return ""


def _locator(config: pytest.Config) -> SkillLocator:
    if _LOCATOR not in config.stash:
        given = config.getoption("skillopt_setting_skill", None) or ini(config, "skill")
        config.stash[_LOCATOR] = SkillLocator(config.rootpath, given or "")
    return config.stash[_LOCATOR]


def keep_tasks(config: pytest.Config, items: list[pytest.Item]) -> int:
    """Deselect the tests that are no tasks, or always skipped; return how many."""
    tasks: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        is_task = item.get_closest_marker(MARKER) and not item.get_closest_marker("skip")
        (tasks if is_task else others).append(item)
    if others:
        items[:] = tasks
        config.hook.pytest_deselected(items=others)
    return len(others)


def describe_tasks(
    config: pytest.Config, settings: Settings, items: Sequence[pytest.Item]
) -> list[SkillTask]:
    """Return the tasks among the items; raise UsageError for a wrong marker or unknown skill."""
    new = SKILL_FILE if config.getoption("skillopt_init") else ""
    try:
        return collect_tasks(items, SkillLocator(config.rootpath, settings.skill, new=new))
    except SkillError as error:
        raise pytest.UsageError(str(error)) from None
