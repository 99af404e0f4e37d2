"""Make tests and seed skills from an environment of either package, without importing it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.addons.bridges.environments import Chat, as_test, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt.model.agent import Agent
    from pytest_skillopt.suite.context import Recorder, Skill


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
        return _tasks_of_env(env, **options)
    if hasattr(env, "rollout") and hasattr(env, "build_env_from_batch"):
        from pytest_skillopt.addons.bridges.skillopt import tasks_of_adapter

        return tasks_of_adapter(env, **options)
    raise pytest.UsageError(
        f"tasks_of: {type(env).__name__} is neither a skillrl SkillEnv (get_items, rollout_one) "
        "nor a SkillOpt EnvAdapter (build_env_from_batch, rollout)"
    )


class Client:
    """Replacement of skillrl's ``BaseLLMClient``, the ``target_client`` of ``rollout_one``."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.model = chat.model

    def chat(self, *, system: str, user: str, **options: Any) -> tuple[str, dict[str, int]]:
        """Return one completion; the plugin's settings replace the options."""
        return self._chat(system, user)


def _tasks_of_env(env: Any, *, skill: str = "") -> Callable[..., None]:
    def test(item: dict[str, Any], skill: Skill, skill_agent: Agent, rollout: Recorder) -> None:
        """Solve an item of the environment."""
        __tracebackhide__ = True
        chat = Chat(skill_agent)
        row = env.rollout_one(item=dict(item), skill=skill.text, target_client=Client(chat))
        if chat.fault is not None:
            raise chat.fault
        settle(row, rollout)

    return as_test(test, {name: _items(env, name) for name in ("train", "val", "test")}, skill)


def _items(env: Any, split: str) -> list[dict[str, Any]]:
    try:
        return list(env.get_items(split))
    except KeyError:
        return []


def initial_skill(env: Any, path: str | Path, description: str = "") -> Path:
    """Write the skill of ``env.get_initial_skill()`` to a new SKILL.md, and return its path.

    The ``description`` is for the frontmatter, which is added if it is missing.

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
