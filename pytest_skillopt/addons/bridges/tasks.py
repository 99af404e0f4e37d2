"""Make tests, hooks and seed skills from an environment of either package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


def tasks_of(env: Any, **options: Any) -> Callable[..., None]:
    """Make a test with a task for each item of an environment, in the environment's splits.

    Args:
        env: a ``skillrl.SkillEnv`` or a SkillOpt ``EnvAdapter``, recognised by its methods.
        options: ``skill``, path of the SKILL.md, for both; ``cfg``, ``chat`` and ``episodes`` for
            an ``EnvAdapter`` (:func:`pytest_skillopt.addons.bridges.skillopt.tasks_of_adapter`).

    Raises:
        pytest.UsageError: it is neither of them, or has no items.
    """
    if hasattr(env, "rollout_one") and hasattr(env, "get_items"):
        from pytest_skillopt.addons.bridges.skillrl import tasks_of_env

        return tasks_of_env(env, **options)
    if hasattr(env, "rollout") and hasattr(env, "build_env_from_batch"):
        from pytest_skillopt.addons.bridges.skillopt import tasks_of_adapter

        return tasks_of_adapter(env, **options)
    raise pytest.UsageError(
        f"tasks_of: {type(env).__name__} is neither a skillrl SkillEnv (get_items, rollout_one) "
        "nor a SkillOpt EnvAdapter (build_env_from_batch, rollout)"
    )


def initial_skill(env: Any, path: str | Path, description: str = "") -> Path:
    """Write an environment's initial skill to a new SKILL.md, and return its path.

    Args:
        env: an object with ``get_initial_skill``.
        path: the new file.
        description: for the frontmatter, which is added if it is missing.

    Raises:
        FileExistsError: the file exists; it is not changed.
    """
    path = Path(path)
    text = str(env.get_initial_skill() if hasattr(env, "get_initial_skill") else "")
    name = str(getattr(env, "name", "") or path.parent.name or "skill").lower().replace("_", "-")
    head = ""
    if not text.startswith("---"):
        head = f"---\nname: {name}\ndescription: {description or 'To be written.'}\n---\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(f"{head}{text or '# Instructions'}\n")
    return path


def reflect_with(adapter: Any, *, chat: str = "") -> Callable[..., Any]:
    """Make the hook ``pytest_skillopt_reflect`` from the ``reflect`` of a SkillOpt ``EnvAdapter``.

    ::

        # conftest.py
        pytest_skillopt_reflect = reflect_with(MyAdapter(), chat="my_env.reflect:chat_optimizer")

    Args:
        adapter: it is given the rows that its ``rollout`` returned.
        chat: ``module:function`` through which it calls its optimizer; these calls go to the
            plugin's optimizer, else their costs are unknown here.
    """
    from pytest_skillopt.addons.bridges.skillopt import reflection

    return reflection(adapter, chat)
