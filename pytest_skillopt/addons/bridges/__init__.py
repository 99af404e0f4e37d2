"""Environments of skillrl and SkillOpt as tasks: one line in a test file, one item each.

::

    from pytest_skillopt.addons.bridges import tasks_of

    test_qa = tasks_of(MyEnv())
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.model.types import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_skillopt.model.agent import Agent

__all__ = ["initial_skill", "settings_of", "tasks_of"]


def tasks_of(env: Any, **options: Any) -> Callable[..., None]:
    """A test with a task for every item of an environment; the environment's splits are kept.

    Args:
        env: a ``skillrl.SkillEnv`` or a SkillOpt ``EnvAdapter`` (by what it can do, not by class).
        options: ``skill``, path of the SKILL.md, for both; ``cfg`` and ``chat`` for an
            ``EnvAdapter`` (:func:`pytest_skillopt.addons.bridges.skillopt.tasks_of_adapter`).

    Raises:
        pytest.UsageError: neither of them, or without a single item.
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
    """Write an environment's seed skill to a SKILL.md, with the frontmatter that one has.

    Args:
        env: with ``get_initial_skill``.
        path: of the new file.
        description: for the frontmatter.

    Raises:
        FileExistsError: there is one; it is left as it is.
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


_SETTINGS = {
    "num_epochs": "epochs",
    "batch_size": "batch_size",
    "minibatch_size": "minibatch_size",
    "merge_batch_size": "merge_batch_size",
    "edit_budget": "edit_budget",
    "min_edit_budget": "min_edit_budget",
    "lr_scheduler": "schedule",
    "gate_metric": "metric",
    "failure_only": "failure_only",
    "seed": "seed",
}


def settings_of(config: Any) -> dict[str, Any]:
    """The ini keys that stand for a ``skillrl.SkillOptConfig`` (or a mapping with its keys).

    They choose the published pipeline, ``skillopt_search = "batch"``; the gate stays ours.
    """
    given: Mapping[str, Any] = config if isinstance(config, dict) else vars(config)
    found = {f"skillopt_{ours}": given[name] for name, ours in _SETTINGS.items() if name in given}
    return {"skillopt_search": "batch", **found}


class Chat:
    """The target model for code that brings messages of its own.

    What the model could not answer is kept: an environment that swallows an error and scores it as
    a wrong answer would make a verdict of a fault.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.model = agent.model.name
        self.fault: ModelError | None = None

    def __call__(self, system: str, user: str) -> tuple[str, dict[str, int]]:
        """The answer, and the tokens under the names that both packages use.

        Raises:
            ModelError: as ``Model.complete``.
        """
        messages = [{"role": "system", "content": system}] if system else []
        try:
            reply = self._agent.chat([*messages, {"role": "user", "content": user}])
        except ModelError as error:
            self.fault = error
            raise
        used = reply.usage
        return str(reply), {
            "prompt_tokens": used.input_tokens,
            "completion_tokens": used.output_tokens,
            "total_tokens": used.input_tokens + used.output_tokens,
        }


def as_test(
    function: Callable[..., None], splits: Mapping[str, Sequence[dict[str, Any]]], skill: str
) -> Callable[..., None]:
    """A function of ``item`` as a test with a task for every item, in the split it came in.

    Raises:
        pytest.UsageError: there is no item.
    """
    found: list[Any] = []
    for split, items in splits.items():
        for number, item in enumerate(items):
            mark = pytest.mark.skill_task(split=split, **({"skill": skill} if skill else {}))
            identity = str(item.get("id") or f"{split}-{number}")
            found.append(pytest.param(item, marks=mark, id=identity))
    if not found:
        raise pytest.UsageError("tasks_of: the environment has no item in train, val or test")
    test: Callable[..., None] = pytest.mark.parametrize("item", found)(function)
    return test


def settle(row: Any, rollout: Any) -> None:
    """Make a verdict of a rollout's ``hard`` and ``soft``.

    Raises:
        TypeError: they are no finite numbers.
    """
    __tracebackhide__ = True
    given: dict[str, Any] = row if isinstance(row, dict) else vars(row)
    try:
        hard, soft = float(given["hard"]), float(given.get("soft", given["hard"]))
        if not (math.isfinite(hard) and math.isfinite(soft)):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise TypeError(
            f"a rollout needs the numbers 'hard' and 'soft', and this one has {sorted(given)}"
        ) from None
    rollout.score(min(1.0, max(0.0, soft)))
    if hard < 1:
        said = str(given.get("fail_reason") or given.get("predicted_answer") or "hard is 0")
        pytest.fail(said, pytrace=False)
