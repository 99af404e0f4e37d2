"""Turn environments of skillrl and SkillOpt into tests, with one task for each item.

::

    from pytest_skillopt.addons.bridges import tasks_of

    test_qa = tasks_of(MyEnv())
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.addons.bridges.config import edits_of, prompts_of, settings_of
from pytest_skillopt.model.types import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_skillopt.model.agent import Agent

__all__ = ["edits_of", "initial_skill", "prompts_of", "reflect_with", "settings_of", "tasks_of"]


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


class Chat:
    """Target model for code that builds its own messages.

    An error of the model is kept in ``fault``, so that an environment that catches it cannot score
    it as a wrong answer.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.model = agent.model.name
        self.fault: Exception | None = None

    def __call__(self, system: str, user: str) -> tuple[str, dict[str, int]]:
        """Return the answer, and its tokens under the names that both packages use.

        Raises:
            ModelError: as ``Model.complete``.
        """
        message, used = self.messages(two_messages(system, user))
        return str(message["content"] or ""), used

    def messages(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """Return the last message, as in the Chat Completions API, and its tokens.

        Raises:
            ModelError: as ``Model.complete``.
        """
        try:
            reply = self._agent.chat(messages, tools=tools)
        except ModelError as error:
            self.fault = error
            raise
        used = reply.usage
        return reply.message, {
            "prompt_tokens": used.input_tokens,
            "completion_tokens": used.output_tokens,
            "total_tokens": used.input_tokens + used.output_tokens,
        }


def two_messages(system: str, user: str) -> list[dict[str, Any]]:
    said = [{"role": "system", "content": system}] if system else []
    return [*said, {"role": "user", "content": user}]


def as_test(
    function: Callable[..., None], splits: Mapping[str, Sequence[dict[str, Any]]], skill: str
) -> Callable[..., None]:
    """Parametrize a function of ``item`` as a test with a task for each item, in its split.

    Raises:
        pytest.UsageError: there is no item.
    """
    found: list[Any] = []
    for split, items in splits.items():
        for number, item in enumerate(items):
            kind = str(item.get("task_type") or item.get("subtype") or "") or None
            about = {"skill": skill or None, "kind": kind}
            about = {name: value for name, value in about.items() if value}
            mark = pytest.mark.skill_task(split=split, **about)
            identity = str(item.get("id") or f"{split}-{number}")
            found.append(pytest.param(item, marks=mark, id=identity))
    if not found:
        raise pytest.UsageError("tasks_of: the environment has no item in train, val or test")
    test: Callable[..., None] = pytest.mark.parametrize("item", found)(function)
    return test


def settle(row: Any, rollout: Any, reference: str = "") -> None:
    """Set the rollout's score to ``soft``, and fail the test if ``hard`` is below 1.

    The optimizer is shown ``reference``, a hint at the right answer, with the reason of a failure.

    Raises:
        TypeError: they are not finite numbers.
    """
    __tracebackhide__ = True
    given: dict[str, Any] = row if isinstance(row, dict) else vars(row)
    try:
        hard, soft = float(given["hard"]), float(given.get("soft", given["hard"]))
        if not (math.isfinite(hard) and math.isfinite(soft)):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise TypeError(
            f"a rollout needs the numbers 'hard' and 'soft', but this one has {sorted(given)}"
        ) from None
    rollout.score(min(1.0, max(0.0, soft)))
    if hard < 1:
        said = str(given.get("fail_reason") or given.get("predicted_answer") or "hard is 0")
        if reference:
            rollout.feedback(f"{said}\n\nReference, never to be quoted in the skill: {reference}")
        pytest.fail(said, pytrace=False)
