"""What a session with a mode on is about: the skill tasks among the collected items."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.skill.document import SkillError
from pytest_skillopt.skill.files import SKILL_FILE
from pytest_skillopt.suite.collect import MARKER, collect_tasks
from pytest_skillopt.suite.locate import SkillLocator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.tasks import SkillTask


def keep_tasks(config: pytest.Config, items: list[pytest.Item]) -> int:
    """Leave the skill tasks alone in ``items``; return how many others were deselected."""
    others = [item for item in items if item.get_closest_marker(MARKER) is None]
    if others:
        items[:] = [item for item in items if item.get_closest_marker(MARKER) is not None]
        config.hook.pytest_deselected(items=others)
    return len(others)


def describe_tasks(
    config: pytest.Config, settings: Settings, items: Sequence[pytest.Item]
) -> list[SkillTask]:
    """The tasks among the collected items.

    Raises:
        pytest.UsageError: a wrong marker, or no way to tell which skill a task is about.
    """
    new = SKILL_FILE if config.getoption("skillopt_init") else ""
    try:
        return collect_tasks(items, SkillLocator(config.rootpath, settings.skill, new=new))
    except SkillError as error:
        raise pytest.UsageError(str(error)) from None
