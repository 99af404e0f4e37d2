"""Turn files of cases, and environments of skillrl and SkillOpt, into tests.

::

    from pytest_skillopt.addons.bridges import tasks_of

    test_qa = tasks_of(MyEnv())
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_skillopt.addons.bridges.cases import read_cases
    from pytest_skillopt.addons.bridges.config import edits_of, prompts_of, settings_of
    from pytest_skillopt.addons.bridges.tasks import initial_skill, reflect_with, tasks_of

__all__ = [
    "edits_of",
    "initial_skill",
    "prompts_of",
    "read_cases",
    "reflect_with",
    "settings_of",
    "tasks_of",
]

_HOMES = {
    "cases": ("read_cases",),
    "config": ("edits_of", "prompts_of", "settings_of"),
    "tasks": ("initial_skill", "reflect_with", "tasks_of"),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is used: the add-on's declaration is loaded in every session."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(name)
