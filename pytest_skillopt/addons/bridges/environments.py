"""Share between environments: calls of the target model, tests of items, scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.model.agent import as_message, as_turn
from pytest_skillopt.model.types import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_skillopt.model.agent import Agent
    from pytest_skillopt.model.types import Completion


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
            reply = complete(self._agent, messages, tools)
        except ModelError as error:
            self.fault = error
            raise
        used = reply.usage
        return as_message(reply), {
            "prompt_tokens": used.input_tokens,
            "completion_tokens": used.output_tokens,
            "total_tokens": used.input_tokens + used.output_tokens,
        }


def complete(
    agent: Agent, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()
) -> Completion:
    """Complete messages as ``Agent.complete``, and record them with the reply as the transcript."""
    for message in messages:
        agent.record(str(message["role"]), _words(message.get("content") or ""))
    reply = agent.complete([dict(message) for message in messages], list(tools))
    agent.record("assistant", as_turn(reply))
    return reply


def _words(content: Any) -> str:
    """Return the text of a content; any other part, such as a picture, by its type."""
    if not isinstance(content, list):
        return str(content)
    return "\n".join(str(part.get("text", f"[{part.get('type')}]")) for part in content)


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
