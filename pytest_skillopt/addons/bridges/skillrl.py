"""Turn a ``skillrl.SkillEnv`` into tests, without importing skillrl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_skillopt.addons.bridges.environments import Chat, as_test, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt.model.agent import Agent
    from pytest_skillopt.suite.context import Recorder, Skill


class Client:
    """Replacement of skillrl's ``BaseLLMClient``, the ``target_client`` of ``rollout_one``."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.model = chat.model

    def chat(self, *, system: str, user: str, **options: Any) -> tuple[str, dict[str, int]]:
        """Return one completion; the plugin's settings replace the options."""
        return self._chat(system, user)


def tasks_of_env(env: Any, *, skill: str = "") -> Callable[..., None]:
    """Make a test with a task for each item of an environment."""
    splits = {name: _items(env, name) for name in ("train", "val", "test")}

    def test(item: dict[str, Any], skill: Skill, skill_agent: Agent, rollout: Recorder) -> None:
        """Solve an item of the environment."""
        __tracebackhide__ = True
        chat = Chat(skill_agent)
        row = env.rollout_one(item=dict(item), skill=skill.text, target_client=Client(chat))
        if chat.fault is not None:
            raise chat.fault
        settle(row, rollout)

    return as_test(test, splits, skill)


def _items(env: Any, split: str) -> list[dict[str, Any]]:
    try:
        return list(env.get_items(split))
    except KeyError:
        return []
