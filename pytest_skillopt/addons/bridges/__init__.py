"""Turn environments of skillrl and SkillOpt into tests, with one task for each item.

::

    from pytest_skillopt.addons.bridges import tasks_of

    test_qa = tasks_of(MyEnv())
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_skillopt.addons.bridges.config import prompts_of, settings_of
    from pytest_skillopt.addons.bridges.environments import reflect_with, tasks_of

__all__ = ["prompts_of", "reflect_with", "settings_of", "tasks_of"]


def __getattr__(name: str) -> Any:
    """Import a name when it is used: the add-on's declaration is loaded in every session."""
    if name not in __all__:
        raise AttributeError(name)
    module = "config" if name in ("prompts_of", "settings_of") else "environments"
    return getattr(import_module(f"{__name__}.{module}"), name)
