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

from pytest_skillopt.model.types import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_skillopt.model.agent import Agent

__all__ = ["initial_skill", "settings_of", "tasks_of"]


def tasks_of(env: Any, **options: Any) -> Callable[..., None]:
    """Make a test with a task for each item of an environment, in the environment's splits.

    Args:
        env: a ``skillrl.SkillEnv`` or a SkillOpt ``EnvAdapter``, recognised by its methods.
        options: ``skill``, path of the SKILL.md, for both; ``cfg`` and ``chat`` for an
            ``EnvAdapter`` (:func:`pytest_skillopt.addons.bridges.skillopt.tasks_of_adapter`).

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
    """Translate a ``skillrl.SkillOptConfig`` (or a mapping with its keys) into ini keys.

    They select the published search, ``skillopt_search = "batch"``, with this package's gate.
    """
    given: Mapping[str, Any] = config if isinstance(config, dict) else vars(config)
    found = {f"skillopt_{ours}": given[name] for name, ours in _SETTINGS.items() if name in given}
    return {"skillopt_search": "batch", **found}


class Chat:
    """Target model for code that builds its own messages.

    An error of the model is kept in ``fault``, so that an environment that catches it cannot score
    it as a wrong answer.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.model = agent.model.name
        self.fault: ModelError | None = None

    def __call__(self, system: str, user: str) -> tuple[str, dict[str, int]]:
        """Return the answer, and its tokens under the names that both packages use.

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
    """Parametrize a function of ``item`` as a test with a task for each item, in its split.

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
    """Set the rollout's score to ``soft``, and fail the test if ``hard`` is below 1.

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
        pytest.fail(said, pytrace=False)
