"""Turn environments of skillrl and SkillOpt into tests.

An adapter of SkillOpt calls its model through a function that its modules import by name (``from
skillopt.model import chat_target``). With ``chat="my_env.rollout:chat_target"`` this function is
replaced, and its calls go to the plugin's target: cached, capped and counted. Otherwise the adapter
uses SkillOpt's own backend, and its costs are unknown here.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import math
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.model.agent import as_message, as_turn
from pytest_skillopt.model.types import ModelError, ModelFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_skillopt.model.agent import Agent
    from pytest_skillopt.model.types import Completion, Messages
    from pytest_skillopt.rollouts.context import Recorder, Skill

    Item = dict[str, Any]
    """Item of an environment, or the row of its rollout."""

_OPTIONS = frozenset(
    {"max_completion_tokens", "max_tokens", "temperature", "retries", "stage", "timeout"}
    | {"reasoning_effort"}
)
"""Arguments of a call that are ignored in favour of the plugin's settings."""


def tasks_of(env: Any, **options: Any) -> Callable[..., None]:
    """Make a test with a task for each item of an environment, in the environment's splits.

    Args:
        env: a ``skillrl.SkillEnv`` or a SkillOpt ``EnvAdapter``, recognised by its methods.
        options: ``skill``, path of the SKILL.md, for both; ``cfg``, ``chat`` and ``episodes`` for
            an ``EnvAdapter`` (:func:`tasks_of_adapter`).

    Raises:
        pytest.UsageError: it is neither of them, or has no items.
    """
    if hasattr(env, "rollout_one") and hasattr(env, "get_items"):
        return _tasks_of_env(env, **options)
    if hasattr(env, "rollout") and hasattr(env, "build_env_from_batch"):
        return tasks_of_adapter(env, **options)
    raise pytest.UsageError(
        f"tasks_of: {type(env).__name__} is neither a skillrl SkillEnv (get_items, rollout_one) "
        "nor a SkillOpt EnvAdapter (build_env_from_batch, rollout)"
    )


def _tasks_of_env(env: Any, *, skill: str = "") -> Callable[..., None]:
    def test(item: Item, skill: Skill, skill_agent: Agent, rollout: Recorder) -> None:
        """Solve an item of the environment."""
        __tracebackhide__ = True
        chat = Chat(skill_agent)
        row = env.rollout_one(item=dict(item), skill=skill.text, target_client=chat)
        if chat.fault is not None:
            raise chat.fault
        score_row(row, rollout)

    return as_test(test, {name: _items(env, name) for name in ("train", "val", "test")}, skill)


def _items(env: Any, split: str) -> list[Item]:
    try:
        return list(env.get_items(split))
    except KeyError:
        return []


class Chat:
    """Target model for code that builds its own messages; skillrl's ``target_client``.

    An error of the model is kept in ``fault``, so that an environment that catches it cannot score
    it as a wrong answer.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.model = agent.model.name
        self.fault: Exception | None = None

    def chat(self, *, system: str, user: str, **options: Any) -> tuple[str, dict[str, int]]:
        """Return the answer, and its tokens under the names that both packages use.

        The plugin's settings replace the options.

        Raises:
            ModelError: as ``Model.complete``.
        """
        message, used = self.messages(two_messages(system, user))
        return str(message["content"] or ""), used

    def messages(
        self, messages: Messages, tools: Sequence[dict[str, Any]] = ()
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


def complete(agent: Agent, messages: Messages, tools: Sequence[dict[str, Any]] = ()) -> Completion:
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
    function: Callable[..., None], splits: Mapping[str, Sequence[Item]], skill: str
) -> Callable[..., None]:
    """Parametrize a function of ``item`` as a test with a task for each item, in its split.

    Raises:
        pytest.UsageError: there is no item.
    """
    found: list[Any] = []
    for split, items in splits.items():
        for number, item in enumerate(items):
            about = {
                "skill": skill,
                "kind": str(item.get("task_type") or item.get("subtype") or ""),
            }
            given = {name: value for name, value in about.items() if value}
            mark = pytest.mark.skill_task(split=split, **given)
            identity = str(item.get("id") or f"{split}-{number}")
            found.append(pytest.param(item, marks=mark, id=identity))
    if not found:
        raise pytest.UsageError("tasks_of: the environment has no item in train, val or test")
    test: Callable[..., None] = pytest.mark.parametrize("item", found)(function)
    return test


def score_row(row: Any, rollout: Any, reference: str = "") -> None:
    """Set the rollout's score to ``soft``, and fail the test if ``hard`` is below 1.

    The optimizer is shown ``reference``, a hint at the right answer, with the reason of a failure.

    Raises:
        TypeError: they are not finite numbers.
        ModelFault: the row says ``agent_ok: False``: the agent did not run to its end.
    """
    __tracebackhide__ = True
    given: dict[str, Any] = row if isinstance(row, dict) else vars(row)
    if given.get("agent_ok") is False:
        reason = given.get("fail_reason") or "it gives no fail_reason"
        raise ModelFault(f"the adapter's agent did not run (agent_ok is False): {reason}")
    try:
        hard = float(given["hard"])
        soft = float(given.get("soft", given["hard"]))
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


@dataclass
class Batch:
    """Copy of SkillOpt's ``BatchSpec`` for a batch of one item."""

    phase: str
    split: str
    seed: int
    batch_size: int
    payload: object | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def _row_of(adapter: Any, batch: Any, skill: str, out: Path) -> Any:
    """Have an adapter carry out a batch of one item; return its row."""
    rows = adapter.rollout(adapter.build_env_from_batch(batch), skill, str(out))
    if not rows:
        raise TypeError(f"{type(adapter).__name__}.rollout returned no row")
    return rows[0]


def tasks_of_adapter(
    adapter: Any,
    *,
    skill: str = "",
    cfg: dict[str, Any] | None = None,
    chat: str = "",
    episodes: Mapping[str, int] | None = None,
) -> Callable[..., None]:
    """Make a test with a task for each item of an adapter.

    Args:
        adapter: an ``EnvAdapter`` whose ``get_dataloader`` has ``train_items``, ``val_items`` and
            ``test_items``; its ``split_dir`` or ``split_ratio`` makes them in ``setup``.
        skill: path of the SKILL.md.
        cfg: SkillOpt's configuration; if given, ``adapter.setup(cfg)`` is called first.
        chat: ``module:function`` through which the adapter calls its model.
        episodes: number of tasks by split, such as ``{"train": 20, "val": 10}``, for a loader that
            only plans batches: each task is a batch of one, planned with a seed of its own.

    Raises:
        pytest.UsageError: there is neither an item nor ``episodes``, or no such function.
    """
    if cfg is not None:
        adapter.setup(cfg)
    loader = adapter.get_dataloader()
    splits = _own_items(adapter, loader) if episodes is None else _planned(episodes)
    redirect = _Redirect.of(chat) if chat else None

    def own(item: Item, skill: Skill, rollout: Recorder, tmp_path: Path) -> None:
        __tracebackhide__ = True
        batch: Any = Batch("eval", "train", rollout.seed, 1, [dict(item)])
        if episodes is not None:
            batch = _plan(loader, item["split"], item["seed"])
        row = _row_of(adapter, batch, skill.text, tmp_path)
        hint = getattr(adapter, "build_reference_text", None)
        reference = ""
        if hint and episodes is None:
            reference = str(hint(item) or "")
        score_row(row, rollout, reference)

    def through(
        item: Item, skill: Skill, skill_agent: Agent, rollout: Recorder, tmp_path: Path
    ) -> None:
        __tracebackhide__ = True
        assert redirect is not None
        with redirect.to(Chat(skill_agent)):
            own(item, skill, rollout, tmp_path)

    body = through if redirect else own
    return as_test(body, splits, skill)


def _own_items(adapter: Any, loader: Any) -> dict[str, list[Any]]:
    """Return the items of each split."""
    if loader is None or not hasattr(loader, "train_items"):
        raise pytest.UsageError(
            f"tasks_of: {type(adapter).__name__} has no data loader with train_items, val_items "
            "and test_items (SplitDataLoader): without a fixed set of items, say how many episodes "
            'to plan, such as episodes={"train": 20, "val": 10}'
        )
    names = ("train", "val", "test")
    return {name: list(getattr(loader, f"{name}_items", ())) for name in names}


def _planned(episodes: Mapping[str, int]) -> dict[str, list[Item]]:
    """Name the episodes of each split; seeds differ between splits."""
    starts = {"train": 0, "val": 1_000_000, "test": 2_000_000}
    if unknown := episodes.keys() - starts:
        raise pytest.UsageError(f"tasks_of: episodes has {min(unknown)!r}; use train, val, test")
    planned: dict[str, list[Item]] = {}
    for split, many in episodes.items():
        named = [{"id": f"{split}-{n}", "split": split} for n in range(many)]
        planned[split] = [row | {"seed": starts[split] + n} for n, row in enumerate(named)]
    return planned


def _plan(loader: Any, split: str, seed: int) -> Any:
    phase = "train" if split == "train" else "eval"
    if loader is None:
        return Batch(phase, split, seed, 1)
    if split == "train":
        return loader.build_train_batch(batch_size=1, seed=seed)
    return loader.build_eval_batch(env_num=1, split=split, seed=seed)


class _Redirect:
    """Replacement of the function by which an adapter calls its model.

    It finds the rollout that a call belongs to. Rollouts may run in parallel: a call from a thread
    of the adapter's own is assigned only if there is just one current rollout.
    """

    def __init__(self) -> None:
        self._mine: contextvars.ContextVar[Chat | None] = contextvars.ContextVar("chat")
        self._current: list[Chat] = []
        self._lock = threading.Lock()

    @classmethod
    def of(cls, place: str) -> _Redirect:
        """Replace ``module:function``, or return its replacement if another adapter made it."""
        module, _, name = place.partition(":")
        try:
            owner = importlib.import_module(module)
            found = getattr(owner, name)
        except (ImportError, AttributeError, ValueError) as error:
            raise pytest.UsageError(
                f"tasks_of: chat={place!r} is not an existing 'module:function' ({error})"
            ) from None
        redirect = getattr(found, "__self__", None)
        if not isinstance(redirect, cls):
            redirect = cls()
            setattr(owner, name, redirect._call)
        return redirect

    @contextlib.contextmanager
    def to(self, chat: Chat) -> Iterator[None]:
        """Answer a rollout's calls by its chat; at the end raise the chat's fault, if any."""
        token = self._mine.set(chat)
        with self._lock:
            self._current.append(chat)
        try:
            yield
        finally:
            self._mine.reset(token)
            with self._lock:
                self._current.remove(chat)
            if chat.fault is not None:
                raise chat.fault

    def _call(self, *given: Any, **options: Any) -> tuple[Any, dict[str, int]]:
        """Answer a call of ``(system, user)`` texts, or of a list of messages, also with tools."""
        chat = self._mine.get(None)
        with self._lock:
            callers = [chat] if chat else list(self._current)
        names = ("messages",) if given and isinstance(given[0], list) else ("system", "user")
        asked = dict(zip(names, given, strict=False)) | options
        messages = asked.pop("messages", None)
        texts = asked.pop("system", ""), asked.pop("user", "")
        tools = asked.pop("tools", None) or []
        whole = asked.pop("return_message", False)
        if asked.get("tool_choice") in (None, "auto"):
            asked.pop("tool_choice", None)
        if messages is None and any(texts) and all(isinstance(text, str) for text in texts):
            messages = two_messages(*texts)
        if words := _unsupported(sorted(asked.keys() - _OPTIONS), messages, len(callers)):
            fault = ModelFault(words, fatal=True)
            for caller in callers:  # An adapter may catch it and score a wrong answer.
                caller.fault = fault
            raise fault
        message, used = callers[0].messages(messages, tools)
        if not whole:
            return str(message["content"] or ""), used
        from openai.types.chat import ChatCompletionMessage

        return ChatCompletionMessage.model_validate(message), used


def _unsupported(odd: list[str], messages: Any, callers: int) -> str:
    """Say why a call cannot be passed on; empty if it can."""
    if odd or not messages:
        given_as = f"with {', '.join(odd)}" if odd else "without a prompt"
        return (
            f"the adapter calls its model {given_as}; chat= supports functions of a system and "
            "a user prompt, or of messages and tools, such as chat_target_messages"
        )
    if callers == 1:
        return ""
    return (
        "an adapter that calls its model from its own threads needs skillopt_lanes = 1: "
        "use -n to run rollouts in parallel"
    )
