"""A ``skillrl.SkillEnv`` as tasks. skillrl itself is imported by the environment alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_skillopt.addons.bridges import Chat, as_test, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt.model.agent import Agent
    from pytest_skillopt.suite.context import Recorder, Skill


class Client:
    """What skillrl hands to ``rollout_one`` as ``target_client``: its ``BaseLLMClient``."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.model = chat.model

    def chat(self, *, system: str, user: str, **options: Any) -> tuple[str, dict[str, int]]:
        """One completion; limits, retries and temperature are the plugin's settings."""
        return self._chat(system, user)


def tasks_of_env(env: Any, *, skill: str = "") -> Callable[..., None]:
    """See :func:`pytest_skillopt.addons.bridges.tasks_of`."""
    splits = {name: _items(env, name) for name in ("train", "val", "test")}

    def test(item: dict[str, Any], skill: Skill, skill_agent: Agent, rollout: Recorder) -> None:
        """An item of the environment."""
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
